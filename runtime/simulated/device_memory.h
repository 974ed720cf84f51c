#pragma once

// DeviceMemory: the device allocations (cuMemAlloc) of one device.
//
// Allocations of 1 MiB and more take whole granules; smaller ones share granules. Always
// the lowest free address, first fit. The address space is larger than the memory, as a
// device's page tables make it: scattered free granules can still serve a large request.
// Not thread-safe: the driver holds its lock around every call.

#include "runtime/simulated/device_capacity.h"
#include "runtime/simulated/free_ranges.h"
#include "runtime/simulated/granule.h"
#include "runtime/simulated/host_pages.h"
#include "runtime/simulated/memory_access.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace cistern::simulated {

class DeviceMemory {
 public:
  DeviceMemory(AddressWindow window, DeviceCapacity& capacity, HostPages& pages);

  // Nothing, unchanged, if the device is full. Requires: bytes > 0.
  [[nodiscard]] std::optional<std::uint64_t> allocate(std::size_t bytes);
  // Whether a live allocation begins here.
  [[nodiscard]] bool is_allocation(std::uint64_t address) const;
  // Requires: is_allocation(address), or it was withdrawn.
  void release(std::uint64_t address);
  // Takes an allocation from its callers: it is none any more, but operations that were queued
  // before may touch it until release. Requires: is_allocation(address).
  void withdraw(std::uint64_t address) { withdrawn_.insert(address); }
  // Whether one live allocation holds [address, address + bytes): with Moment::turn, withdrawn
  // ones among them.
  [[nodiscard]] bool holds(std::uint64_t address, std::size_t bytes, Moment moment = Moment::call) const;
  struct Allocation {
    std::uint64_t begin = 0;
    std::size_t bytes = 0;
    std::uint64_t id = 0;  // of this device: never used again
  };
  // The allocation that an address lies in.
  [[nodiscard]] std::optional<Allocation> find(std::uint64_t address) const;

  // Whole granules for a stream-ordered pool: they count, but are no allocation here.
  // Requires: bytes is a multiple of the granule, and not 0. Nothing, unchanged, if they do not fit.
  [[nodiscard]] std::optional<std::uint64_t> take_chunk(std::size_t bytes);
  void give_back_chunk(std::uint64_t address, std::size_t bytes) { give_back_granules(address, bytes); }

  // Addresses alone, for what gets its memory later: whole granules that are no allocation here.
  // Requires: as take_chunk. Nothing, unchanged, if there are not so many.
  [[nodiscard]] std::optional<std::uint64_t> reserve(std::size_t bytes) { return place_granules(bytes, kPooled); }
  // Their memory, which counts, and is nowhere in particular. Requires: bytes as take_chunk. False,
  // unchanged, if the device is full.
  [[nodiscard]] bool take_memory(std::size_t bytes) { return capacity_.take(bytes); }
  void give_back_memory(std::size_t bytes) { capacity_.give_back(bytes); }
  // The bytes there are nobody's: the host need not keep them.
  void discard(std::uint64_t address, std::size_t bytes) { pages_.discard_device(address, bytes); }
  // Requires: what was reserved, without memory.
  void give_back_addresses(std::uint64_t address, std::size_t bytes);
  [[nodiscard]] const AddressWindow& window() const noexcept { return window_; }

 private:
  static constexpr std::uint64_t kShared = ~std::uint64_t{0};
  static constexpr std::uint64_t kPooled = kShared - 1;
  struct Extent {
    std::uint64_t bytes = 0;  // of the allocation that begins with a granule; 0: none; or one of the above
    std::uint64_t id = 0;
  };
  struct Small {
    std::size_t bytes = 0;
    std::uint64_t id = 0;
  };

  [[nodiscard]] std::size_t granule_of(std::uint64_t address) const { return (address - window_.begin) / kGranule; }
  [[nodiscard]] std::uint64_t extent_at(std::size_t granule) const {
    return granule < extents_.size() ? extents_[granule].bytes : 0;
  }
  [[nodiscard]] std::optional<std::size_t> extent_start_at_or_below(std::size_t granule) const;
  [[nodiscard]] std::optional<std::uint64_t> place_granules(std::size_t bytes, std::uint64_t extent);
  [[nodiscard]] std::optional<std::uint64_t> take_granules(std::size_t bytes, std::uint64_t extent);
  void give_back_granules(std::uint64_t address, std::size_t bytes);
  [[nodiscard]] std::optional<std::uint64_t> allocate_small(std::size_t bytes);
  void release_small(std::map<std::uint64_t, Small>::iterator small);

  AddressWindow window_;
  DeviceCapacity& capacity_;
  HostPages& pages_;
  FreeRanges free_granules_;
  // By granule, grown as granules are used: constant-time look-ups without a search tree.
  std::vector<Extent> extents_;
  std::vector<std::uint64_t> starts_;  // one bit a granule: an extent begins here
  FreeRanges free_shared_{kGranule};   // inside shared granules
  std::map<std::uint64_t, Small> small_;
  std::set<std::uint64_t> withdrawn_;
  std::uint64_t next_id_ = 1;
};

}  // namespace cistern::simulated
