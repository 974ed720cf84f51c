#pragma once

// What the process has mapped, in pages; asked without host memory. And which pages of a mapping are there.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace cistern::testing_host {

inline constexpr std::size_t kMappedPage = 4096;

inline std::int64_t mapped_pages() {
  std::array<char, 128> text{};
  const int file = ::open("/proc/self/statm", O_RDONLY);
  if (::read(file, text.data(), text.size() - 1) <= 0) std::abort();
  ::close(file);
  return std::strtoll(text.data(), nullptr, 10);
}

// Requires: a page begins there.
inline std::size_t resident_pages(void* begin, std::size_t bytes) {
  std::vector<unsigned char> pages((bytes + kMappedPage - 1) / kMappedPage);
  EXPECT_EQ(::mincore(begin, bytes, pages.data()), 0);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; }));
}

}  // namespace cistern::testing_host
