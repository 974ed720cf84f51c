#include "allocator/growing_table.h"

#include "tests/allocator/mapped_pages.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace cistern {
namespace {

constexpr std::size_t kTableBytes = std::size_t{8} << 20;

using testing_host::kMappedPage;
using testing_host::mapped_pages;
using testing_host::resident_pages;

TEST(GrowingTable, KeepsWhatIsInItWhereverItGrows) {
  GrowingTable<std::uint32_t> table;
  EXPECT_EQ(table.size(), 0U);
  int times = 0;
  for (std::uint32_t i = 0; i < 3'000'000; ++i) {
    const std::size_t before = table.size();
    table.provide(i + 1);
    ASSERT_GT(table.size(), i);
    times += table.size() != before ? 1 : 0;
    table[i] = 7 * i;
  }
  for (std::uint32_t i = 0; i < 3'000'000; ++i) ASSERT_EQ(table[i], 7 * i);
  EXPECT_LT(times, 12);
}

// What is expected is address space alone; what is provided for is there, and an eighth more.
TEST(GrowingTable, TakesPagesWhereTheyAreNeeded) {
  GrowingTable<std::array<std::uint64_t, 5>> table;
  table.expect(kTableBytes / 40);
  EXPECT_EQ(table.size(), kTableBytes / 40);
  EXPECT_EQ(resident_pages(table.data(), kTableBytes), 0U);
  if (::madvise(table.data(), kMappedPage, MADV_POPULATE_WRITE) != 0) GTEST_SKIP() << "not before Linux 5.14";
  const std::int64_t before = mapped_pages();
  std::size_t times = 0;
  std::size_t there = 1;
  for (std::size_t elements = 1; elements <= kTableBytes / 40; elements += 100) {
    table.provide(elements);
    const std::size_t pages = resident_pages(table.data(), kTableBytes);
    times += pages != there ? 1 : 0;
    there = pages;
    ASSERT_GE(pages, elements * 40 / kMappedPage);
    ASSERT_LE(pages, (elements + std::max<std::size_t>(elements / 8, 410)) * 40 / kMappedPage + 1);
  }
  EXPECT_GT(times, 30U);
  EXPECT_LT(times, 80U);
  EXPECT_EQ(mapped_pages(), before);
}

// Where something lies behind it, it goes elsewhere.
TEST(GrowingTable, GrowsWhereItCannotStay) {
  auto* const table = static_cast<unsigned char*>(obtain_table(kTableBytes));
  table[kTableBytes - 1] = 5;
  void* const behind =
      ::mmap(table + kTableBytes, kMappedPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  auto* const larger = static_cast<unsigned char*>(enlarge_table(table, kTableBytes, 3 * kTableBytes));
  EXPECT_NE(larger, table);
  EXPECT_EQ(larger[kTableBytes - 1], 5);
  EXPECT_EQ(larger[3 * kTableBytes - 1], 0);
  release_table(larger, 3 * kTableBytes);
  if (behind != MAP_FAILED) ::munmap(behind, kMappedPage);
}

TEST(GrowingTable, IsTheOtherOnesOnceItIsMoved) {
  GrowingTable<int> first;
  first.provide(kTableBytes);
  first[9] = 3;
  GrowingTable<int> second(std::move(first));
  EXPECT_EQ(second[9], 3);
  GrowingTable<int> third;
  third = std::move(second);
  EXPECT_EQ(third[9], 3);
  EXPECT_GE(third.size(), kTableBytes);
}

TEST(GrowingTable, GoesBackWhole) {
  const std::int64_t before = mapped_pages();
  {
    std::array<GrowingTable<std::array<std::uint64_t, 5>>, 3> tables;
    for (auto& table : tables) {
      table.provide(1);
      table.provide(100'000);
    }
    EXPECT_GE(mapped_pages() - before, 3 * 100'000 * 40 / static_cast<std::int64_t>(kMappedPage));
  }
  EXPECT_EQ(mapped_pages(), before);
}

TEST(GrowingTable, ThatCannotBeHadIsBadAlloc) {
  GrowingTable<std::uint64_t> table;
  for (const std::size_t elements : {std::size_t{0}, std::size_t{100}, kTableBytes}) {
    if (elements != 0) {
      table.provide(elements);
      table[99] = 11;
    }
    const std::size_t size = table.size();
    const std::int64_t before = mapped_pages();
    EXPECT_THROW(table.provide(std::size_t{1} << 57), std::bad_alloc);
    EXPECT_THROW(table.provide(std::numeric_limits<std::size_t>::max() / 8), std::bad_array_new_length);
    EXPECT_EQ(table.size(), size);
    EXPECT_LT(mapped_pages() - before, 1000) << "exceptions take host memory, too";
    EXPECT_TRUE(elements == 0 || table[99] == 11);
  }
}

// Who says how much comes has addresses for as much, and for some more where more comes bit by bit.
TEST(GrowingTable, HasAddressesForWhatIsExpected) {
  GrowingTable<std::array<std::uint64_t, 512>> table;  // of a page each
  const std::int64_t before = mapped_pages();
  const auto pages = [&] { return mapped_pages() - before; };
  table.expect(1000);
  EXPECT_EQ(pages(), 1000);
  table.expect(1001);
  EXPECT_EQ(pages(), 1125);
  table.provide(1126);
  EXPECT_EQ(pages(), 2250);
}

// What the kernel says of the mapping that begins there: "VmFlags: rd wr mr mw me ac sd nh".
std::string flags_of(const void* begin) {
  std::ifstream maps("/proc/self/smaps");
  const std::string range = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(begin));
  bool is_it = false;
  for (std::string line; std::getline(maps, line);) {
    if (std::isxdigit(static_cast<unsigned char>(line.front())) != 0 && line.find('-') != std::string::npos)
      is_it = line.rfind(range, 0) == 0;
    if (is_it && line.rfind("VmFlags:", 0) == 0) return line + " ";
  }
  return "";
}

TEST(GrowingTable, HasSmallPagesWhateverTheSystemPrefers) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "the kernel has no others";
  void* const table = enlarge_table(obtain_table(kTableBytes), kTableBytes, 2 * kTableBytes);
  // A mapping of its own: it does not lie beside others of its kind.
  EXPECT_EQ(::mprotect(table, kMappedPage, PROT_READ), 0);
  EXPECT_NE(flags_of(table).find(" nh "), std::string::npos) << flags_of(table);
  release_table(table, 2 * kTableBytes);
}

TEST(GrowingList, IsAVectorInItsRoom) {
  GrowingList<int> list;
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.begin(), list.end());
  list.provide(10'000);
  EXPECT_GE(list.room(), 10'000U);
  std::vector<int> expected;
  for (int i = 0; i < 10'000; ++i) {
    list.push_back(3 * i);
    expected.push_back(3 * i);
  }
  for (int i = 0; i < 20; ++i) {
    list.pop_back();
    expected.pop_back();
  }
  list.provide(1'000'000);
  EXPECT_EQ(std::vector<int>(list.begin(), list.end()), expected);
  EXPECT_EQ(list.back(), expected.back());
  GrowingList<int> other;
  other = std::move(list);
  EXPECT_EQ(other.size(), expected.size());
  const GrowingList<int> third(std::move(other));
  EXPECT_EQ(third[7], 21);
  EXPECT_EQ(third.size(), expected.size());
}

}  // namespace
}  // namespace cistern
