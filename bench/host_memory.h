#pragma once

// Counts the host memory that is asked for in this program, through replaced operator new and mmap:
// what the library's own books take, and whether a hit takes any.
//
// What a thread asks for inside of a DriverCall is not counted: that is the driver's.
// Thread safety: any thread may ask for memory at any time; figures are relaxed atomics.

#include <cstddef>
#include <cstdint>

namespace cistern {

struct HostMemory {
  std::size_t heap_bytes = 0;    // asked of operator new and not given back
  std::size_t peak_bytes = 0;    // the most of that since reset_host_memory_peak
  std::size_t mapped_bytes = 0;  // of mmap's mappings: the pages that are there now
};
[[nodiscard]] HostMemory host_memory();
// Calls of operator new, mmap and mremap.
[[nodiscard]] std::uint64_t host_memory_requests();
void reset_host_memory_peak();

// Around a driver call, as DriverAround makes it.
struct DriverCall {
  DriverCall();
  ~DriverCall();
  DriverCall(const DriverCall&) = delete;
  DriverCall& operator=(const DriverCall&) = delete;
};

}  // namespace cistern
