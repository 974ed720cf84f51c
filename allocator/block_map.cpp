#include "allocator/block_map.h"

#include <new>

namespace cistern {

// Addresses are multiples of 512: the multiplication carries their bits to the top half, and
// the shift brings those down.
std::size_t BlockMap::home_of(std::uint64_t address) const {
  return (((address >> 9) * 0x9e3779b97f4a7c15ULL) >> 32) & (capacity_ - 1);
}

// The slot of `address`, or the empty one where it would go. Requires: an empty slot exists.
std::size_t BlockMap::slot_of(std::uint64_t address) const {
  std::size_t slot = home_of(address);
  while (entries_[slot].address != 0 && entries_[slot].address != address) slot = (slot + 1) & (capacity_ - 1);
  return slot;
}

void BlockMap::grow(std::size_t new_capacity) {
  const std::size_t old_capacity = capacity_;
  auto old_entries = std::make_unique<Entry[]>(new_capacity);
  old_entries.swap(entries_);
  capacity_ = new_capacity;
  for (std::size_t i = 0; i < old_capacity; ++i)
    if (old_entries[i].address != 0) entries_[slot_of(old_entries[i].address)] = old_entries[i];
}

// Closes the gap by moving later entries of the same run back, so that no marker of
// deleted entries is needed.
void BlockMap::erase_at(std::size_t slot) {
  const std::size_t mask = capacity_ - 1;
  std::size_t gap = slot;
  for (std::size_t i = (gap + 1) & mask; entries_[i].address != 0; i = (i + 1) & mask) {
    if (((i - home_of(entries_[i].address)) & mask) >= ((i - gap) & mask)) {
      entries_[gap] = entries_[i];
      gap = i;
    }
  }
  entries_[gap] = Entry{};
  --size_;
}

// Half full is the most by choice; without host memory to grow, up to seven eighths serve, slower.
void BlockMap::insert(std::uint64_t address, Block* block) {
  if ((size_ + 1) * 2 > capacity_) {
    try {
      grow(capacity_ == 0 ? 64 : capacity_ * 2);
    } catch (const std::bad_alloc&) {
      if ((size_ + 1) * 8 > capacity_ * 7) throw;
    }
  }
  entries_[slot_of(address)] = {address, block};
  ++size_;
}

void BlockMap::reserve(std::size_t blocks) {
  std::size_t capacity = capacity_ == 0 ? 64 : capacity_;
  while ((size_ + blocks) * 2 > capacity) capacity *= 2;
  if (capacity > capacity_) grow(capacity);
}

Block* BlockMap::take(std::uint64_t address) noexcept {
  if (size_ == 0) return nullptr;
  const std::size_t slot = slot_of(address);
  Block* block = entries_[slot].block;
  if (block != nullptr) erase_at(slot);
  return block;
}

Block* BlockMap::find(std::uint64_t address) const noexcept {
  return size_ == 0 ? nullptr : entries_[slot_of(address)].block;
}

}  // namespace cistern
