#include "allocator/block_map.h"

namespace cistern {

std::uint64_t BlockMap::hash(std::uint64_t address) {
  // Addresses are multiples of 512: the multiplication carries their bits to the top, from
  // which the shard is taken, and the shift brings them back down for the slot.
  return (address >> 9) * 0x9e3779b97f4a7c15ULL;
}

// The slot of `address`, or the empty one where it would go. Requires: an empty slot exists.
std::size_t BlockMap::Shard::slot_of(std::uint64_t address) const {
  const std::size_t mask = capacity - 1;
  std::size_t slot = (hash(address) >> 20) & mask;
  while (entries[slot].address != 0 && entries[slot].address != address) slot = (slot + 1) & mask;
  return slot;
}

void BlockMap::Shard::grow() {
  const std::size_t old_capacity = capacity;
  const std::size_t new_capacity = capacity == 0 ? 16 : capacity * 2;
  auto old_entries = std::make_unique<Entry[]>(new_capacity);
  old_entries.swap(entries);
  capacity = new_capacity;
  for (std::size_t i = 0; i < old_capacity; ++i)
    if (old_entries[i].address != 0) entries[slot_of(old_entries[i].address)] = old_entries[i];
}

// Closes the gap by moving later entries of the same run back, so that no marker of
// deleted entries is needed.
void BlockMap::Shard::erase_at(std::size_t slot) {
  const std::size_t mask = capacity - 1;
  std::size_t gap = slot;
  for (std::size_t i = (gap + 1) & mask; entries[i].address != 0; i = (i + 1) & mask) {
    const std::size_t home = (hash(entries[i].address) >> 20) & mask;
    if (((i - home) & mask) >= ((i - gap) & mask)) {
      entries[gap] = entries[i];
      gap = i;
    }
  }
  entries[gap] = Entry{};
  --size;
}

void BlockMap::insert(std::uint64_t address, Block* block) {
  Shard& part = shard(address);
  const std::lock_guard lock(part.mutex);
  if ((part.size + 1) * 2 > part.capacity) part.grow();
  part.entries[part.slot_of(address)] = {address, block};
  ++part.size;
}

Block* BlockMap::take(std::uint64_t address) noexcept {
  Shard& part = shard(address);
  const std::lock_guard lock(part.mutex);
  if (part.size == 0) return nullptr;
  const std::size_t slot = part.slot_of(address);
  Block* block = part.entries[slot].block;
  if (block != nullptr) part.erase_at(slot);
  return block;
}

Block* BlockMap::find(std::uint64_t address) const noexcept {
  const Shard& part = shard(address);
  const std::lock_guard lock(part.mutex);
  return part.size == 0 ? nullptr : part.entries[part.slot_of(address)].block;
}

std::size_t BlockMap::size() const noexcept {
  std::size_t total = 0;
  for (const Shard& part : shards_) {
    const std::lock_guard lock(part.mutex);
    total += part.size;
  }
  return total;
}

}  // namespace cistern
