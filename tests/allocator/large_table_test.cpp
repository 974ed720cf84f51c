#include "allocator/large_table.h"

#include <fcntl.h>
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
#include <vector>

namespace cistern {
namespace {

// What the process has mapped, without host memory.
std::int64_t mapped_pages() {
  std::array<char, 128> text{};
  const int file = ::open("/proc/self/statm", O_RDONLY);
  EXPECT_GT(::read(file, text.data(), text.size() - 1), 0);
  ::close(file);
  return std::strtoll(text.data(), nullptr, 10);
}

bool begins_a_huge_page(const void* table) { return reinterpret_cast<std::uintptr_t>(table) % kHugePage == 0; }

TEST(LargeTable, BeginsAHugePageFromItsSizeOn) {
  const LargeTable<std::uint64_t> one(kHugePage / 8);
  const LargeTable<std::uint64_t> more(kHugePage / 8 * 3 + 5);
  EXPECT_TRUE(begins_a_huge_page(one.data()));
  EXPECT_TRUE(begins_a_huge_page(more.data()));
}

TEST(LargeTable, GrowsThroughBothKindsOfMemory) {
  LargeTable<std::uint32_t> table;
  for (std::uint32_t i = 0; i < 2'000'000; ++i) table.push_back(i);
  std::uint32_t expected = 0;
  for (const std::uint32_t value : table) ASSERT_EQ(value, expected++);
}

TEST(LargeTable, GoesBackWhole) {
  for (const std::size_t bytes : {kHugePage, kHugePage + 1, 3 * kHugePage - 1}) {
    const std::int64_t before = mapped_pages();
    void* const table = obtain_table(bytes);
    const std::int64_t during = mapped_pages();
    release_table(table, bytes);
    const std::int64_t page = ::sysconf(_SC_PAGESIZE);
    EXPECT_EQ(during - before, (static_cast<std::int64_t>(bytes) + page - 1) / page) << bytes << " bytes";
    EXPECT_EQ(mapped_pages(), before) << bytes << " bytes";
  }
}

TEST(LargeTable, ThatCannotBeHadIsBadAlloc) {
  const std::int64_t before = mapped_pages();
  EXPECT_THROW(static_cast<void>(obtain_table(std::size_t{1} << 60)), std::bad_alloc);
  EXPECT_THROW(static_cast<void>(obtain_table(std::numeric_limits<std::size_t>::max())), std::bad_alloc);
  EXPECT_THROW(static_cast<void>(TableMemory<std::uint64_t>().allocate(std::numeric_limits<std::size_t>::max() / 4)),
               std::bad_array_new_length);
  // Exceptions take host memory, too.
  EXPECT_LT(mapped_pages() - before, static_cast<std::int64_t>(kHugePage) / ::sysconf(_SC_PAGESIZE));
}

// What the kernel says of the mapping that begins there: "VmFlags: rd wr mr mw me ac sd hg".
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

TEST(LargeTable, AsksForHugePages) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "the kernel has none";
  const LargeTable<std::uint64_t> table(2 * kHugePage / 8);
  EXPECT_NE(flags_of(table.data()).find(" hg "), std::string::npos) << flags_of(table.data());
}

TEST(LargeTable, IsThereFromTheStart) {
  void* const table = obtain_table(2 * kHugePage);
  std::vector<unsigned char> is_there(2 * kHugePage / static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(::mincore(table, 2 * kHugePage, is_there.data()), 0);
  const bool can_be = ::madvise(table, kHugePage, MADV_POPULATE_WRITE) == 0;  // not before Linux 5.14
  EXPECT_TRUE(!can_be ||
              std::all_of(is_there.begin(), is_there.end(), [](unsigned char page) { return (page & 1) != 0; }));
  release_table(table, 2 * kHugePage);
}

}  // namespace
}  // namespace cistern
