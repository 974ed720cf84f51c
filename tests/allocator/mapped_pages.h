#pragma once

// What the process has mapped, in pages; asked without host memory.

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>

namespace cistern::testing_host {

inline std::int64_t mapped_pages() {
  std::array<char, 128> text{};
  const int file = ::open("/proc/self/statm", O_RDONLY);
  if (::read(file, text.data(), text.size() - 1) <= 0) std::abort();
  ::close(file);
  return std::strtoll(text.data(), nullptr, 10);
}

}  // namespace cistern::testing_host
