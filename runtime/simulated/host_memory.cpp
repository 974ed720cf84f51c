#include "runtime/simulated/host_memory.h"

#include <iterator>

namespace cistern::simulated {
namespace {

constexpr std::size_t kHostPage = 4096;

}  // namespace

HostMemory::HostMemory(AddressWindow window, HostPages& pages) : window_(window), pages_(pages) {
  if (window.end > window.begin) free_.give_back(window.begin, window.end - window.begin);
}

std::optional<std::uint64_t> HostMemory::allocate(std::size_t bytes, unsigned flags, int device) {
  if (bytes > window_.end - window_.begin) return std::nullopt;
  const std::size_t whole = round_up(bytes, kHostPage);
  const auto address = free_.take_first_fit(whole);
  if (!address) return std::nullopt;
  try {
    ranges_.emplace(*address, Range{*address, bytes, flags, device, false, false, next_id_++});
  } catch (...) {
    free_.give_back(*address, whole);
    throw;
  }
  return address;
}

std::optional<std::uint64_t> HostMemory::allocate_managed(std::size_t bytes, int device) {
  const auto address = allocate(bytes, 0, device);
  if (address) ranges_.at(*address).managed = true;
  return address;
}

bool HostMemory::is_allocation(std::uint64_t address) const {
  const auto range = ranges_.find(address);
  return range != ranges_.end() && !range->second.registered && !range->second.managed;
}

bool HostMemory::is_managed(std::uint64_t address) const {
  const auto range = ranges_.find(address);
  return range != ranges_.end() && range->second.managed;
}

void HostMemory::release(std::uint64_t address) {
  const auto range = ranges_.find(address);
  const std::size_t whole = round_up(range->second.bytes, kHostPage);
  free_.give_back(address, whole);
  pages_.discard_private(address, whole);
  ranges_.erase(range);
}

bool HostMemory::add_registered(std::uint64_t address, std::size_t bytes, unsigned flags, int device) {
  if (overlaps(address, bytes)) return false;
  ranges_.emplace(address, Range{address, bytes, flags, device, true, false, next_id_++});
  return true;
}

bool HostMemory::remove_registered(std::uint64_t address) {
  const auto range = ranges_.find(address);
  if (range == ranges_.end() || !range->second.registered) return false;
  ranges_.erase(range);
  return true;
}

bool HostMemory::overlaps(std::uint64_t address, std::size_t bytes) const {
  const auto after = ranges_.lower_bound(address + bytes);
  return after != ranges_.begin() && std::prev(after)->first + std::prev(after)->second.bytes > address;
}

const HostMemory::Range* HostMemory::find(std::uint64_t address, std::size_t bytes) const {
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return nullptr;
  const Range& range = std::prev(after)->second;
  const std::uint64_t head = address - range.begin;
  return head < range.bytes && bytes <= range.bytes - head ? &range : nullptr;
}

}  // namespace cistern::simulated
