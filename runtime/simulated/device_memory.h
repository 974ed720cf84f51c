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

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace cistern::simulated {

class DeviceMemory {
 public:
  DeviceMemory(AddressWindow window, DeviceCapacity& capacity, HostPages& pages);

  // Nothing, unchanged, if the device is full. Requires: bytes > 0.
  [[nodiscard]] std::optional<std::uint64_t> allocate(std::size_t bytes);
  // Whether a live allocation begins here.
  [[nodiscard]] bool is_allocation(std::uint64_t address) const;
  // Requires: is_allocation(address).
  void release(std::uint64_t address);
  // Whether one live allocation holds [address, address + bytes).
  [[nodiscard]] bool holds(std::uint64_t address, std::size_t bytes) const;
  struct Allocation {
    std::uint64_t begin = 0;
    std::size_t bytes = 0;
    std::uint64_t id = 0;
  };
  [[nodiscard]] std::optional<Allocation> find(std::uint64_t address) const;
  [[nodiscard]] const AddressWindow& window() const noexcept { return window_; }

 private:
  static constexpr std::uint64_t kShared = ~std::uint64_t{0};

  [[nodiscard]] std::size_t granule_of(std::uint64_t address) const { return (address - window_.begin) / kGranule; }
  // The bytes of the allocation that begins with this granule; 0: none; kShared: small ones.
  [[nodiscard]] std::uint64_t extent_at(std::size_t granule) const {
    return granule < extents_.size() ? extents_[granule] : 0;
  }
  [[nodiscard]] std::optional<std::size_t> extent_start_at_or_below(std::size_t granule) const;
  [[nodiscard]] std::optional<std::uint64_t> take_granules(std::size_t bytes, std::uint64_t extent);
  void give_back_granules(std::uint64_t address, std::size_t bytes);
  [[nodiscard]] std::optional<std::uint64_t> allocate_small(std::size_t bytes);
  void release_small(std::map<std::uint64_t, std::size_t>::iterator small);

  AddressWindow window_;
  DeviceCapacity& capacity_;
  HostPages& pages_;
  FreeRanges free_granules_;
  // By granule, grown as granules are used: constant-time look-ups without a search tree.
  std::vector<std::uint64_t> extents_;
  std::vector<std::uint64_t> starts_;  // one bit a granule: an extent begins here
  FreeRanges free_shared_{kGranule};   // inside shared granules
  std::map<std::uint64_t, std::size_t> small_;
};

}  // namespace cistern::simulated
