#pragma once

// What a driver knows of the memory at an address: what cuPointerGetAttribute tells.

#include "runtime/driver_api.h"

#include <cstddef>
#include <cstdint>

namespace cistern::simulated {

enum class MemoryOrigin : std::uint8_t {
  device_allocation,
  pool,
  virtual_memory,
  host_allocation,
  host_registration,
  graph,
  managed
};

struct MemoryDescription {
  MemoryOrigin origin = MemoryOrigin::device_allocation;
  int device = 0;           // whose memory, or with whose context host memory was locked
  std::uint64_t range = 0;  // the allocation, or the reservation
  std::size_t range_bytes = 0;
  bool is_mapped = true;      // false: reserved addresses without memory; only the range is known
  std::uint64_t mapping = 0;  // what of the range is one piece of memory
  std::size_t mapping_bytes = 0;
  CUmemAllocationHandleType handle_types = CU_MEM_HANDLE_TYPE_NONE;
  CUmemoryPool pool = nullptr;
  std::uint64_t id = 0;  // of the memory: unique in the driver, never used again

  [[nodiscard]] bool is_host() const {
    return origin == MemoryOrigin::host_allocation || origin == MemoryOrigin::host_registration;
  }
};

}  // namespace cistern::simulated
