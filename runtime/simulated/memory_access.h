#pragma once

// What operations do to memory, in plain data: how it is touched, copied and filled.

#include "runtime/driver_api.h"
#include "runtime/simulated/operation.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cistern::simulated {

// Who touches: copy engines reach all memory of the process, kernels their own device's, that of
// peers they were given access to, and page-locked host memory.
enum class Toucher : std::uint8_t { copy_engine, kernel };

// When it is asked: memory of a stream-ordered pool is there, for a caller, from cuMemAllocAsync to
// cuMemFreeAsync, and for an operation from the one's turn to the other's.
enum class Moment : std::uint8_t { call, turn };

struct Touch {
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  bool write = false;
  int device = 0;  // whose access to it counts
  Toucher by = Toucher::kernel;
};

struct Copy {
  CUdeviceptr destination = 0;
  CUdeviceptr source = 0;
  std::size_t bytes = 0;
  int destination_device = 0;  // whose access counts, for each side
  int source_device = 0;
  // What stood at the source when the call was made; null: it is read when the copy runs.
  std::shared_ptr<const std::vector<std::byte>> staged = nullptr;

  [[nodiscard]] Touch writes() const { return {destination, bytes, true, destination_device, Toucher::copy_engine}; }
  [[nodiscard]] std::vector<MemoryAccess> accesses() const {
    if (staged) return {{destination, bytes, true}};
    return {{source, bytes, false}, {destination, bytes, true}};
  }
  [[nodiscard]] Touch reads() const { return {source, bytes, false, source_device, Toucher::copy_engine}; }
};

// `count` values of `width` bytes: 1, 2 or 4.
struct Fill {
  CUdeviceptr destination = 0;
  unsigned value = 0;
  std::size_t width = 1;
  std::size_t count = 0;
  int device = 0;

  [[nodiscard]] std::size_t bytes() const { return width * count; }
  [[nodiscard]] Touch writes() const { return {destination, bytes(), true, device, Toucher::copy_engine}; }
};

}  // namespace cistern::simulated
