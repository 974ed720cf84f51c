// Line tables, honest and not.

#include "stats/dwarf_lines.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/stats/elf_image.h"

namespace cistern {
namespace {

// A directory "/src" and a file of that name in it; the file is number 1.
std::string files_4(const std::string& name) {
  return std::string("/src\0", 5) + std::string(1, '\0') + name + std::string{0, 1, 0, 0} + std::string(1, '\0');
}
// 16 bytes of code at 0x1000, of the line that the table begins with.
const std::string kCodeAt0x1000 = at_address(0x1000) + kCopy + advance_to(16) + kEndOfSequence;

std::vector<SourceLine> asked_for(std::vector<std::uint64_t> addresses) {
  std::vector<SourceLine> lines;
  for (const std::uint64_t address : addresses) lines.push_back({address, "", 0});
  return lines;
}

TEST(DwarfLines, CoverTheAddressesFromARowToTheNext) {
  const std::string table = line_table_4(files_4("a.c"), kCodeAt0x1000);
  std::vector<SourceLine> lines = asked_for({0xfff, 0x1000, 0x100f, 0x1010});
  find_source_lines({table, {}, nullptr}, lines);
  EXPECT_FALSE(lines[0].is_found);
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) {
    EXPECT_EQ(lines[i].file, "/src/a.c");
    EXPECT_EQ(lines[i].line, 1);
  }
  EXPECT_FALSE(lines[3].is_found);
}

// Version 5: a list of formats, a number of entries, the entries; first of directories, then of files.
std::string files_5(char form, const std::string& directory, const std::string& file) {
  return std::string{1, 1, form, 1} + directory + std::string{1, 1, form, 1} + file;
}

TEST(DwarfLines, NameFilesByPlacesInTheSectionsOfStrings) {
  constexpr char kStrp = 0x0e, kLineStrp = 0x1f;
  const std::string program = at_address(0x1000) + std::string{4, 0} + kCopy + advance_to(16) + kEndOfSequence;
  const std::string first = bytes_of(std::uint32_t{0}), second = bytes_of(std::uint32_t{5});
  const std::string strings("/src\0a.c\0", 9);
  std::vector<SourceLine> lines = asked_for({0x1004});
  find_source_lines({line_table_5(files_5(kLineStrp, first, second), program), strings, nullptr}, lines);
  EXPECT_EQ(lines[0].file, "/src/a.c");

  lines = asked_for({0x1004});
  const auto str = [&](std::uint64_t offset) { return std::string(strings.c_str() + offset); };
  find_source_lines({line_table_5(files_5(kStrp, first, second), program), {}, str}, lines);
  EXPECT_EQ(lines[0].file, "/src/a.c");

  lines = asked_for({0x1004});
  find_source_lines({line_table_5(files_5(kStrp, first, second), program), strings, nullptr}, lines);
  EXPECT_TRUE(lines[0].is_found);
  EXPECT_EQ(lines[0].file, "") << "without a section of strings";
}

TEST(DwarfLines, PathsLongerThanAnyAreNone) {
  for (const std::size_t length : {kMostPathBytes, kMostPathBytes + 1}) {
    const std::string name(length, 'x');
    const std::string table = line_table_4(files_4(name), kCodeAt0x1000);
    std::vector<SourceLine> lines = asked_for({0x1000});
    find_source_lines({table, {}, nullptr}, lines);
    EXPECT_EQ(lines[0].file, length == kMostPathBytes ? "/src/" + name : "") << length;

    constexpr char kLineStrp = 0x1f;
    const std::string program = at_address(0x1000) + std::string{4, 0} + kCopy + advance_to(16) + kEndOfSequence;
    const std::string at_0 = bytes_of(std::uint32_t{0});
    lines = asked_for({0x1000});
    find_source_lines({line_table_5(files_5(kLineStrp, at_0, at_0), program), '/' + name.substr(1) + '\0', nullptr},
                      lines);
    EXPECT_EQ(lines[0].file.size(), length == kMostPathBytes ? length : 0) << length;
  }
}

// Each row covers every address: visited again and again that would be 10^10 visits.
TEST(DwarfLines, ThatNameEveryAddressAgainAndAgainVisitEachOnce) {
  std::string program;
  for (int i = 0; i < 100'000; ++i) program += at_address(1) + kCopy + at_address(~std::uint64_t{0}) + kCopy;
  const std::string table = line_table_4(files_4("a.c"), program);
  std::vector<SourceLine> lines;
  for (std::uint64_t i = 0; i < 100'000; ++i) lines.push_back({16 * i + 1, "", 0});
  find_source_lines({table, {}, nullptr}, lines);
  for (const SourceLine& line : lines) ASSERT_EQ(line.file, "/src/a.c") << line.address;
}

// Strings that do not end: searched for an end once for each file that would be 10^11 bytes.
TEST(DwarfLines, OfFilesWithoutNamesLookForNone) {
  constexpr char kLineStrp = 0x1f;
  std::string table{1, 1, kLineStrp, 0, 1, 1, kLineStrp};
  table += "\xff\xff\x1f";  // 2^19 - 1
  for (int i = 0; i < (1 << 19) - 1; ++i) table += bytes_of(std::uint32_t{0});
  const std::string program = at_address(0x1000) + kCopy + advance_to(16) + kEndOfSequence;
  const std::string strings(1 << 20, 'x');
  std::vector<SourceLine> lines = asked_for({0x1000});
  find_source_lines({line_table_5(table, program), strings, nullptr}, lines);
  EXPECT_TRUE(lines[0].is_found);
  EXPECT_EQ(lines[0].file, "");
}

TEST(DwarfLines, OfTwoFilesOfOneProgramTheFirstIsBelieved) {
  std::vector<SourceLine> lines = asked_for({0x1000, 0x2000});
  const std::string first = line_table_4(files_4("a.c"), kCodeAt0x1000);
  const std::string second =
      line_table_4(files_4("b.c"), kCodeAt0x1000 + at_address(0x2000) + kCopy + advance_to(16) + kEndOfSequence);
  find_source_lines({first, {}, nullptr}, lines);
  find_source_lines({second, {}, nullptr}, lines);
  EXPECT_EQ(lines[0].file, "/src/a.c");
  EXPECT_EQ(lines[1].file, "/src/b.c");
}

}  // namespace
}  // namespace cistern
