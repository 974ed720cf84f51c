#include "runtime/simulated/device_memory.h"

#include <bit>

namespace cistern::simulated {

DeviceMemory::DeviceMemory(AddressWindow window, DeviceCapacity& capacity, HostPages& pages)
    : window_(window), capacity_(capacity), pages_(pages) {
  if (window.end > window.begin) free_granules_.give_back(window.begin, window.end - window.begin);
}

std::optional<std::uint64_t> DeviceMemory::allocate(std::size_t bytes) {
  if (bytes > capacity_.total()) return std::nullopt;
  return bytes < kShareBelow ? allocate_small(bytes) : take_granules(round_up(bytes, kGranule), bytes);
}

std::optional<std::uint64_t> DeviceMemory::place_granules(std::size_t bytes, std::uint64_t extent) {
  const auto address = free_granules_.take_first_fit(bytes);
  if (!address) return std::nullopt;
  const std::size_t granule = granule_of(*address);
  if (granule >= extents_.size()) extents_.resize(granule + 1);
  if (granule / 64 >= starts_.size()) starts_.resize(granule / 64 + 1);
  extents_[granule] = {extent, next_id_++};
  starts_[granule / 64] |= std::uint64_t{1} << (granule % 64);
  return address;
}

std::optional<std::uint64_t> DeviceMemory::take_granules(std::size_t bytes, std::uint64_t extent) {
  if (!capacity_.take(bytes)) return std::nullopt;
  const auto address = place_granules(bytes, extent);
  if (!address) capacity_.give_back(bytes);
  return address;
}

void DeviceMemory::give_back_granules(std::uint64_t address, std::size_t bytes) {
  give_back_addresses(address, bytes);
  capacity_.give_back(bytes);
}

void DeviceMemory::give_back_addresses(std::uint64_t address, std::size_t bytes) {
  const std::size_t granule = granule_of(address);
  free_granules_.give_back(address, bytes);
  extents_[granule] = {};
  starts_[granule / 64] &= ~(std::uint64_t{1} << (granule % 64));
  pages_.discard_device(address, bytes);
}

std::optional<std::uint64_t> DeviceMemory::allocate_small(std::size_t bytes) {
  const std::size_t rounded = round_up(bytes, kAllocationAlignment);
  auto address = free_shared_.take_first_fit(rounded);
  if (!address) {
    const auto granule = take_granules(kGranule, kShared);
    if (!granule) return std::nullopt;
    free_shared_.give_back(*granule, kGranule);
    address = free_shared_.take_first_fit(rounded);
  }
  small_.emplace(*address, Small{bytes, next_id_++});
  return address;
}

void DeviceMemory::release_small(std::map<std::uint64_t, Small>::iterator small) {
  const std::uint64_t address = small->first;
  const std::size_t rounded = round_up(small->second.bytes, kAllocationAlignment);
  const std::uint64_t granule = round_down(address, kGranule);
  free_shared_.give_back(address, rounded);
  small_.erase(small);
  if (free_shared_.take(granule, kGranule)) {
    give_back_granules(granule, kGranule);
  } else {
    pages_.discard_device(address, rounded);
  }
}

bool DeviceMemory::is_allocation(std::uint64_t address) const {
  if (!window_.contains(address) || withdrawn_.count(address) != 0) return false;
  const std::uint64_t extent = extent_at(granule_of(address));
  if (extent == 0 || extent == kPooled) return false;
  return extent == kShared ? small_.count(address) != 0 : address % kGranule == 0;
}

void DeviceMemory::release(std::uint64_t address) {
  withdrawn_.erase(address);
  const std::uint64_t extent = extent_at(granule_of(address));
  if (extent == kShared) {
    release_small(small_.find(address));
  } else {
    give_back_granules(address, round_up(extent, kGranule));
  }
}

std::optional<std::uint64_t> DeviceMemory::take_chunk(std::size_t bytes) {
  if (bytes > capacity_.total()) return std::nullopt;
  return take_granules(bytes, kPooled);
}

std::optional<std::size_t> DeviceMemory::extent_start_at_or_below(std::size_t granule) const {
  std::size_t word = granule / 64;
  std::uint64_t mask = ~std::uint64_t{0} >> (63 - granule % 64);
  if (word >= starts_.size()) {
    if (starts_.empty()) return std::nullopt;
    word = starts_.size() - 1;
    mask = ~std::uint64_t{0};
  }
  for (;; --word, mask = ~std::uint64_t{0}) {
    const std::uint64_t bits = starts_[word] & mask;
    if (bits != 0) return word * 64 + 63 - static_cast<std::size_t>(std::countl_zero(bits));
    if (word == 0) return std::nullopt;
  }
}

std::optional<DeviceMemory::Allocation> DeviceMemory::find(std::uint64_t address) const {
  if (!window_.contains(address)) return std::nullopt;
  const auto start = extent_start_at_or_below(granule_of(address));
  if (!start || extents_[*start].bytes == kPooled) return std::nullopt;
  Allocation found{window_.begin + *start * kGranule, extents_[*start].bytes, extents_[*start].id};
  if (found.bytes == kShared) {
    auto small = small_.upper_bound(address);
    if (small == small_.begin()) return std::nullopt;
    --small;
    found = {small->first, small->second.bytes, small->second.id};
  }
  if (address - found.begin >= found.bytes) return std::nullopt;
  return found;
}

bool DeviceMemory::holds(std::uint64_t address, std::size_t bytes, Moment moment) const {
  const auto found = find(address);
  if (!found || bytes > found->bytes - (address - found->begin)) return false;
  return moment == Moment::turn || withdrawn_.count(found->begin) == 0;
}

}  // namespace cistern::simulated
