#pragma once

// BlockMap: from the address of a live block to its Block, for one heap.
//
// An open-addressing table, at most a third full, so that runs are short: one probe run a look-up, no allocation
// once grown.
// Not thread-safe: the owning DeviceAllocator holds its lock around every call.

#include "allocator/block.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace cistern {

class BlockMap {
 public:
  // Room for one more. Throws std::bad_alloc, unchanged.
  void make_room() {
    if (!has_room()) grow_by_choice();
  }
  // Whether one more fits without allocating.
  [[nodiscard]] bool has_room() const noexcept { return (size_ + 1) * 3 <= capacity_; }
  // Requires: make_room, and `address` is not 0 and not in the map.
  void insert(std::uint64_t address, Block* block) noexcept {
    entries_[slot_of(address)] = {address, block};
    ++size_;
  }
  // Has the processor bring the place of an address that is about to be inserted. Requires: room.
  void fetch_place_of(std::uint64_t address) const noexcept { __builtin_prefetch(&entries_[home_of(address)], 1); }
  // Makes the next `blocks` insertions succeed without allocating. Throws std::bad_alloc, unchanged.
  void reserve(std::size_t blocks);
  // Removes and returns the block at exactly `address`; nullptr if there is none.
  [[nodiscard]] Block* take(std::uint64_t address) noexcept {
    if (size_ == 0) return nullptr;
    const std::size_t slot = slot_of(address);
    Block* block = entries_[slot].block;
    if (block != nullptr) erase_at(slot);
    return block;
  }
  // Requires: a block in the map begins at `address`.
  void erase(std::uint64_t address) noexcept { erase_at(slot_of(address)); }
  // Where a block is, until the map changes.
  struct Place {
    Block* block = nullptr;  // null: none begins there
    std::size_t slot = 0;
  };
  [[nodiscard]] Place place_of(std::uint64_t address) const noexcept {
    if (size_ == 0) return {};
    const std::size_t slot = slot_of(address);
    return {entries_[slot].block, slot};
  }
  // Requires: there is a block.
  void erase(const Place& place) noexcept { erase_at(place.slot); }
  [[nodiscard]] Block* find(std::uint64_t address) const noexcept {
    return size_ == 0 ? nullptr : entries_[slot_of(address)].block;
  }
  // Requires: a block in the map begins at `address`.
  [[nodiscard]] Block& at(std::uint64_t address) const noexcept { return *entries_[slot_of(address)].block; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Entry {
    std::uint64_t address = 0;  // 0: empty
    Block* block = nullptr;
  };
  // Addresses are multiples of 512: the multiplication carries their bits to the top half, and
  // the shift brings those down.
  [[nodiscard]] std::size_t home_of(std::uint64_t address) const {
    return (((address >> 9) * 0x9e3779b97f4a7c15ULL) >> 32) & (capacity_ - 1);
  }
  // The slot of `address`, or the empty one where it would go. Requires: an empty slot exists.
  [[nodiscard]] std::size_t slot_of(std::uint64_t address) const {
    std::size_t slot = home_of(address);
    while (entries_[slot].address != 0 && entries_[slot].address != address) slot = (slot + 1) & (capacity_ - 1);
    return slot;
  }
  void grow_by_choice();
  void grow(std::size_t new_capacity);
  void erase_at(std::size_t slot);

  std::unique_ptr<Entry[]> entries_;
  std::size_t capacity_ = 0;  // a power of two, or 0
  std::size_t size_ = 0;
};

}  // namespace cistern
