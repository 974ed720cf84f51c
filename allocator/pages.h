#pragma once

// Pages: consecutive pieces of address space of one size, each of one physical handle.

#include <cstddef>
#include <cstdint>

namespace cistern {

// The bytes of as many pages as hold so many.
[[nodiscard]] constexpr std::size_t whole_pages(std::size_t bytes, std::size_t page_bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

struct Pages {
  std::uint64_t address = 0;
  std::size_t bytes = 0;  // a multiple of page_bytes
  std::size_t page_bytes = 0;
};

}  // namespace cistern
