#pragma once

// HostMemory: page-locked host memory, allocated by the driver (cuMemHostAlloc) or the caller's
// own and registered (cuMemHostRegister), and managed memory (cuMemAllocManaged).
//
// Allocations have a window of their own, at the lowest free address, in whole pages of 4 KiB.
// Not thread-safe: the driver holds its lock around every call.

#include "runtime/simulated/free_ranges.h"
#include "runtime/simulated/granule.h"
#include "runtime/simulated/host_pages.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace cistern::simulated {

class HostMemory {
 public:
  struct Range {
    std::uint64_t begin = 0;
    std::size_t bytes = 0;
    unsigned flags = 0;
    int device = 0;  // whose context was current
    bool registered = false;
    bool managed = false;  // cuMemAllocManaged
    std::uint64_t id = 0;  // never used again
  };

  HostMemory(AddressWindow window, HostPages& pages);

  // Nothing, unchanged, if the window is full. Requires: bytes > 0.
  [[nodiscard]] std::optional<std::uint64_t> allocate(std::size_t bytes, unsigned flags, int device);
  // Managed memory is memory of the host that every device reaches, as on machines where nothing needs to move.
  [[nodiscard]] std::optional<std::uint64_t> allocate_managed(std::size_t bytes, int device);
  // Whether one begins here: of page-locked memory, of managed.
  [[nodiscard]] bool is_allocation(std::uint64_t address) const;
  [[nodiscard]] bool is_managed(std::uint64_t address) const;
  // Requires: one of the two.
  void release(std::uint64_t address);

  // False, unchanged, if any of it is page-locked already. Requires: bytes > 0.
  [[nodiscard]] bool add_registered(std::uint64_t address, std::size_t bytes, unsigned flags, int device);
  // False, unchanged, if no registered range begins here.
  [[nodiscard]] bool remove_registered(std::uint64_t address);

  // The one range that holds [address, address + bytes); nullptr if none does.
  [[nodiscard]] const Range* find(std::uint64_t address, std::size_t bytes = 1) const;
  // Where allocations are: what is in here and no allocation is memory that was freed.
  [[nodiscard]] const AddressWindow& window() const noexcept { return window_; }

 private:
  [[nodiscard]] bool overlaps(std::uint64_t address, std::size_t bytes) const;

  AddressWindow window_;
  HostPages& pages_;
  FreeRanges free_;
  std::map<std::uint64_t, Range> ranges_;
  std::uint64_t next_id_ = 1;
};

}  // namespace cistern::simulated
