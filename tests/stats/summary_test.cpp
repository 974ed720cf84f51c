// The summary's text, byte for byte, and the sizes that messages print.

#include "stats/summary.h"

#include "stats/sizes.h"
#include "tests/stats/lines.h"
#include "tests/stats/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace cistern {
namespace {

// The input whose table is published with its digest.
MemoryStats published_example() {
  MemoryStats stats;
  stats.allocated_bytes = {{3759017984, 5370806272, 43264245760, 39505227776},
                           {921600, 2097152, 314572800, 313651200},
                           {3758096384, 5368709120, 42949672960, 39191576576}};
  stats.active_bytes = {{3893235712, 5370806272, 43264245760, 39371010048},
                        {921600, 2097152, 314572800, 313651200},
                        {3892314112, 5368709120, 42949672960, 39057358848}};
  stats.requested_bytes = {{3746363473, 5370709113, 42180018176, 38433654703},
                           {850001, 2000000, 304087040, 303237039},
                           {3745513472, 5368709113, 41875931136, 38130417664}};
  stats.reserved_bytes = {{6446645248, 6448742400, 8596226048, 2149580800},
                          {4194304, 6291456, 6291456, 2097152},
                          {6442450944, 6442450944, 8589934592, 2147483648}};
  stats.inactive_split_bytes = {{527560704, 738197504, 9873391616, 9345830912},
                                {3272704, 4194304, 209715200, 206442496},
                                {524288000, 734003200, 9663676416, 9139388416}};
  stats.allocation = {{760, 880, 13094678, 13093918}, {640, 700, 12345678, 12345038}, {120, 180, 749000, 748880}};
  stats.active = {{764, 880, 13094678, 13093914}, {640, 700, 12345678, 12345038}, {124, 180, 749000, 748876}};
  stats.segment = {{32, 33, 43, 11}, {2, 3, 3, 1}, {30, 30, 40, 10}};
  stats.inactive_split = {{26, 37, 1000900, 1000874}, {9, 12, 1000000, 999991}, {17, 25, 900, 883}};
  stats.oversize_allocations = {1, 2, 3, 2};
  stats.oversize_segments = {1, 1, 1, 0};
  stats.num_ooms = 2;
  stats.num_alloc_retries = 5;
  return stats;
}

TEST(Sha256, AgreesWithThePublishedVectors) {
  EXPECT_EQ(Sha256::hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256::hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256::hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Summary, FullTextEqualsThePublishedOneByteForByte) {
  const std::string text = format_summary(published_example(), 3, false, "PyTorch");
  EXPECT_EQ(text.size(), 3666u);
  EXPECT_EQ(Sha256::hex(text), "825531079402d6f218d710415f4271d550b540cd53d1548ab1ef2eea6c4cf60f") << text;
}

TEST(Summary, AbbreviatedTextEqualsThePublishedOneByteForByte) {
  const std::string text = format_summary(published_example(), 3, true, "PyTorch");
  EXPECT_EQ(text.size(), 2262u);
  EXPECT_EQ(Sha256::hex(text), "b91e5b02d28291f4d6bf13b6515bd2f4df25e11ed61c7855869df0776a124aab") << text;
}

TEST(Summary, OwnNameChangesOnlyTheTitle) {
  std::string own = format_summary(published_example(), 3, false, "cistern");
  EXPECT_EQ(lines_of(own)[1], "|                  cistern CUDA memory summary, device ID 3                 |");
  own.replace(own.find("cistern"), 7, "PyTorch");
  EXPECT_EQ(own, format_summary(published_example(), 3, false, "PyTorch"));
}

TEST(Summary, EachLineHas78BytesWhateverTheValues) {
  MemoryStats stats;
  for (const std::int64_t value : {std::int64_t{0}, std::int64_t{786431}, std::int64_t{1} << 40, std::int64_t{-1}}) {
    stats.reserved_bytes.all = {value, value, value, value};
    stats.allocation.all = stats.reserved_bytes.all;
    for (const bool abbreviated : {false, true}) {
      const auto lines = lines_of(format_summary(stats, 12345, abbreviated, "cistern"));
      EXPECT_EQ(lines.size(), abbreviated ? 29u : 47u);
      EXPECT_TRUE(std::all_of(lines.begin(), lines.end(), [](const auto& line) { return line.size() == 77; }));
    }
  }
}

// The first cell of the first row whose label is `label`.
std::string first_cell(const MemoryStats& stats, const std::string& label) {
  for (const std::string& line : lines_of(format_summary(stats, 0, true, "cistern")))
    if (line.rfind("| " + label, 0) == 0) return line.substr(26, 10);
  return "no row " + label;
}

TEST(Summary, SizesMoveToTheNextUnitAt768OfIt) {
  const std::vector<std::pair<std::int64_t, std::string>> boundaries{
      {0, "     0 B  "},         {786431, "786431 B  "},    {786432, "   768 KiB"},
      {805306367, "786431 KiB"}, {805306368, "   768 MiB"}, {824633720832, "   768 GiB"}};
  for (const auto& [value, cell] : boundaries) {
    MemoryStats stats;
    stats.allocated_bytes.all.current = value;
    EXPECT_EQ(first_cell(stats, "Allocated memory"), cell) << value;
  }
}

TEST(Summary, CountsMoveToTheNextUnitAt750Thousand) {
  const std::vector<std::pair<std::int64_t, std::string>> boundaries{
      {0, "      0   "},         {749999, " 749999   "},    {750000, "    750 K "},
      {749999999, " 749999 K "}, {750000000, "    750 M "}, {1000000000000, "1000000 M "}};
  for (const auto& [value, cell] : boundaries) {
    MemoryStats stats;
    stats.allocation.all.current = value;
    stats.oversize_segments.current = value;
    EXPECT_EQ(first_cell(stats, "Allocations"), cell) << value;
    EXPECT_EQ(first_cell(stats, "Oversize GPU segments"), cell) << value;
  }
}

TEST(Summary, PoolRowsUseTheUnitOfTheRowAboveColumnByColumn) {
  MemoryStats stats;
  stats.allocated_bytes.all = {std::int64_t{1} << 30, 786431, 0, 0};
  stats.allocated_bytes.small_pool = {900 << 10, 786431, 0, 0};
  const auto lines = lines_of(format_summary(stats, 0, false, "cistern"));
  EXPECT_EQ(lines[9], "|       from small pool |      0 MiB | 786431 B   |      0 B   |      0 B   |");
}

TEST(Sizes, UnitsHold1024OfThemselvesInclusive) {
  const std::vector<std::pair<std::uint64_t, std::string>> boundaries{{0, "0 bytes"},
                                                                      {1024, "1024 bytes"},
                                                                      {1025, "1.00 KiB"},
                                                                      {1048576, "1024.00 KiB"},
                                                                      {1048577, "1.00 MiB"},
                                                                      {20971520, "20.00 MiB"},
                                                                      {1073741824, "1024.00 MiB"},
                                                                      {1073741825, "1.00 GiB"},
                                                                      {85197914112, "79.35 GiB"},
                                                                      {std::uint64_t{1} << 42, "4096.00 GiB"}};
  for (const auto& [bytes, text] : boundaries) EXPECT_EQ(format_size(bytes), text) << bytes;
}

}  // namespace
}  // namespace cistern
