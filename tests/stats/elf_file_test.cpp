// What is known of ELF files: honest ones, those that lie, and those that shrink while they are read.

#include "stats/elf_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "tests/fuzz/memory_file.h"
#include "tests/stats/elf_image.h"

namespace cistern {
namespace {

// Two functions, a line table and a build id.
ElfImage small_program() {
  ElfImage image;
  image.add_build_id("\x12\xab");
  image.add_functions({{"second", 0x2000, 0}, {"first", 0x1000, 16}});
  const std::string files = std::string("/src\0\0a.c\0\1\0\0\0", 14);
  image.add(".debug_line", SHT_PROGBITS,
            line_table_4(files, at_address(0x1000) + kCopy + advance_to(16) + kEndOfSequence));
  return image;
}

// A file in memory of its own.
class OwnedFile final : public FileBytes {
 public:
  explicit OwnedFile(std::string bytes) : bytes_(std::move(bytes)) {}
  [[nodiscard]] std::uint64_t size() const noexcept override { return file_.size(); }
  [[nodiscard]] std::size_t read(std::uint64_t offset, char* to, std::size_t count) const noexcept override {
    return file_.read(offset, to, count);
  }

 private:
  const std::string bytes_;
  const MemoryFile file_{bytes_};
};

ElfFile loaded(std::string bytes) {
  ElfFile file(std::make_unique<OwnedFile>(std::move(bytes)));
  file.load();
  return file;
}

std::string source_of(const ElfFile& file, std::uint64_t address) {
  std::vector<SourceLine> lines{{address, "", 0}};
  find_source_lines(file.lines(), lines);
  return lines[0].file;
}

struct OnDisk {
  explicit OnDisk(const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
  ~OnDisk() { std::remove(path.c_str()); }
  OnDisk(const OnDisk&) = delete;
  OnDisk& operator=(const OnDisk&) = delete;
  const std::string path = ::testing::TempDir() + ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                           std::to_string(::getpid());
};

TEST(ElfFile, KnowsItsBuildItsFunctionsAndItsLines) {
  const std::string bytes = small_program().bytes();
  const OnDisk disk(bytes);
  ElfFile file(disk.path);
  EXPECT_EQ(file.build_id(), "12ab");
  EXPECT_FALSE(file.has_symbols()) << "not loaded";
  file.load();
  EXPECT_EQ(file.function_at(0xfff), "");
  EXPECT_EQ(file.function_at(0x1000), "first");
  EXPECT_EQ(file.function_at(0x100f), "first");
  EXPECT_EQ(file.function_at(0x1010), "");
  EXPECT_EQ(file.function_at(0x2fff), "second") << "of unknown size";
  EXPECT_EQ(source_of(file, 0x1008), "/src/a.c");
}

TEST(ElfFile, OfNoBuildIsNoneThatIsLookedFor) {
  const ElfFile file = loaded(small_program().bytes());
  EXPECT_TRUE(file.is_of_build("12ab"));
  EXPECT_FALSE(file.is_of_build("12"));
  EXPECT_FALSE(file.is_of_build(""));
  const ElfFile without = loaded(ElfImage().bytes());
  EXPECT_EQ(without.build_id(), "");
  EXPECT_FALSE(without.is_of_build("")) << "two that do not say are not the same";
}

TEST(ElfFile, ThatIsAbsentAPipeOrADirectoryKnowsNothing) {
  const std::string pipe = ::testing::TempDir() + "elf-file-test-pipe" + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/"), std::string("/nowhere/at/all")}) {
    ElfFile file(path);
    file.load();
    EXPECT_EQ(file.build_id(), "") << path;
    EXPECT_FALSE(file.has_symbols()) << path;
  }
  std::remove(pipe.c_str());
}

TEST(ElfFile, TruncatedAfterItWasOpenedKnowsNothing) {
  const std::string bytes = small_program().bytes();
  const OnDisk disk(bytes);
  ElfFile file(disk.path);
  ASSERT_EQ(file.build_id(), "12ab");
  std::filesystem::resize_file(disk.path, 100);
  file.load();
  EXPECT_EQ(file.build_id(), "");
  EXPECT_FALSE(file.has_symbols());
  EXPECT_EQ(source_of(file, 0x1008), "");
}

TEST(ElfFile, TruncatedAfterItWasLoadedHasNoNamesAnyMore) {
  const OnDisk disk(small_program().bytes());
  ElfFile file(disk.path);
  file.load();
  std::filesystem::resize_file(disk.path, 0);
  EXPECT_EQ(file.function_at(0x1000), "");
  EXPECT_EQ(source_of(file, 0x1008), "/src/a.c") << "what is kept is whole";
}

TEST(ElfFile, ThatShrinksAtAnyReadIsWhollyKnownOrNotAtAll) {
  const std::string bytes = small_program().bytes();
  int whole = 0, nothing = 0;
  for (int read = 0; read < 20; ++read)
    for (std::size_t left = 0; left < bytes.size(); left += 7) {
      ElfFile file(std::make_unique<MemoryFile>(bytes, read, left));
      file.load();
      const bool has_lines = source_of(file, 0x1008) == "/src/a.c";
      ASSERT_EQ(file.has_symbols(), has_lines) << "read " << read << ", left " << left;
      ASSERT_EQ(file.build_id(), has_lines ? "12ab" : "") << "read " << read << ", left " << left;
      (has_lines ? whole : nothing) += 1;
    }
  EXPECT_GT(whole, 0);
  EXPECT_GT(nothing, 0);
}

TEST(ElfFile, WhoseSectionsOverlapKeepsNoMoreThanItsSize) {
  ElfImage image = small_program();
  image.add(".debug_line_str", SHT_PROGBITS, "");
  std::string bytes = image.bytes();
  for (std::uint32_t number = 1; number <= 5; ++number)
    if (Elf64_Shdr& section = image.section(number); section.sh_type == SHT_PROGBITS) {
      section.sh_offset = 0;
      section.sh_size = bytes.size();
    }
  bytes = image.bytes();
  const ElfFile file = loaded(bytes);
  EXPECT_LE(file.lines().line.size() + file.lines().line_str.size(), bytes.size());
  EXPECT_EQ(file.function_at(0x1000), "first") << "which comes first";
}

// A file of 2^62 bytes, all zero but for its beginning.
class Vast final : public FileBytes {
 public:
  explicit Vast(std::string_view start) : start_(start) {}
  [[nodiscard]] std::uint64_t size() const noexcept override { return std::uint64_t{1} << 62; }
  [[nodiscard]] std::size_t read(std::uint64_t offset, char* to, std::size_t count) const noexcept override {
    std::memset(to, 0, count);
    static_cast<void>(start_.read(offset, to, count));
    return count;
  }

 private:
  MemoryFile start_;
};

TEST(ElfFile, OfVastSectionsKeepsNone) {
  ElfImage image = small_program();
  image.add(".debug_line_str", SHT_PROGBITS, "");
  for (std::uint32_t number = 1; number <= 5; ++number) image.section(number).sh_size = std::uint64_t{1} << 40;
  const std::string bytes = image.bytes();
  ElfFile file(std::make_unique<Vast>(bytes));
  file.load();
  EXPECT_EQ(file.build_id(), "");
  EXPECT_FALSE(file.has_symbols());
  EXPECT_TRUE(file.lines().line.empty());
  EXPECT_TRUE(file.lines().line_str.empty());
}

TEST(ElfFile, SectionsBeyondItsEndAreAsIfTheyWereNotThere) {
  for (const std::uint64_t size : {std::uint64_t{1} << 20, std::numeric_limits<std::uint64_t>::max()}) {
    ElfImage image = small_program();
    image.section(4).sh_size = size;  // .debug_line
    ElfFile file = loaded(image.bytes());
    EXPECT_EQ(source_of(file, 0x1008), "");
    EXPECT_EQ(file.function_at(0x1000), "first");
    EXPECT_EQ(file.build_id(), "12ab");
  }
}

TEST(ElfFile, NamesThatDoNotEndAreNone) {
  constexpr std::size_t kMost = 64 * 1024;
  for (const std::size_t length : {std::size_t{255}, std::size_t{256}, std::size_t{257}, kMost, kMost + 1}) {
    ElfImage image;
    image.add_functions({{std::string(length, 'x'), 0x1000, 16}});
    const ElfFile file = loaded(image.bytes());
    EXPECT_EQ(file.function_at(0x1000).size(), length <= kMost ? length : 0) << length;
    image.section(1).sh_size -= 1;  // without the name's end
    EXPECT_EQ(loaded(image.bytes()).function_at(0x1000), "") << length;
  }
}

}  // namespace
}  // namespace cistern
