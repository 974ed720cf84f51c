#pragma once

// BlockMap: from the address of a live block to its Block, for one heap.
//
// An open-addressing table: one probe run a look-up, no allocation once grown.
// Not thread-safe: the owning DeviceAllocator holds its lock around every call.

#include "allocator/block.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace cistern {

class BlockMap {
 public:
  // Requires: `address` is not 0 and not in the map. Throws std::bad_alloc, unchanged.
  void insert(std::uint64_t address, Block* block);
  // Makes the next `blocks` insertions succeed without allocating. Throws std::bad_alloc, unchanged.
  void reserve(std::size_t blocks);
  // Removes and returns the block at exactly `address`; nullptr if there is none.
  [[nodiscard]] Block* take(std::uint64_t address) noexcept;
  [[nodiscard]] Block* find(std::uint64_t address) const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Entry {
    std::uint64_t address = 0;  // 0: empty
    Block* block = nullptr;
  };
  [[nodiscard]] std::size_t home_of(std::uint64_t address) const;
  [[nodiscard]] std::size_t slot_of(std::uint64_t address) const;
  void grow(std::size_t new_capacity);
  void erase_at(std::size_t slot);

  std::unique_ptr<Entry[]> entries_;
  std::size_t capacity_ = 0;  // a power of two, or 0
  std::size_t size_ = 0;
};

}  // namespace cistern
