#include "allocator/block_map.h"

#include <new>

namespace cistern {

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

// A third full is the most by choice; without host memory to grow, up to seven eighths serve, slower.
void BlockMap::grow_by_choice() {
  try {
    grow(capacity_ == 0 ? 64 : capacity_ * 2);
  } catch (const std::bad_alloc&) {
    if ((size_ + 1) * 8 > capacity_ * 7) throw;
  }
}

void BlockMap::reserve(std::size_t blocks) {
  std::size_t capacity = capacity_ == 0 ? 64 : capacity_;
  while ((size_ + blocks) * 3 > capacity) capacity *= 2;
  if (capacity > capacity_) grow(capacity);
}

}  // namespace cistern
