#pragma once

// BlockSpares: blocks that are taken for nothing, linked through themselves.
//
// Not thread-safe: guarded by the lock of what it is part of. O(1).

#include "allocator/block.h"

#include <cstddef>

namespace cistern {

class BlockSpares {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  // Requires: there is one. The fields are those of a new object, but priority.
  [[nodiscard]] Block* take() noexcept {
    Block* block = first_;
    first_ = block->next;
    --size_;
    block->next = nullptr;
    return block;
  }
  // Requires: `block` is in no pool, in no segment and in no list, and no free of it is awaited.
  void give(Block* block) noexcept {
    block->address = 0;
    block->bytes = 0;
    block->previous = nullptr;
    block->segment = nullptr;
    block->requested = 0;
    block->state = BlockState::inactive;
    block->oversize = false;
    block->tag = kUntagged;
    if (block->has_uses) drop_uses(*block);
    block->next = first_;
    first_ = block;
    ++size_;
  }
  // Moves `count` of them to `other`. Requires: there are so many. O(count).
  void move_to(BlockSpares& other, std::size_t count) noexcept {
    for (; count != 0; --count) {
      Block* block = take();
      block->next = other.first_;
      other.first_ = block;
      ++other.size_;
    }
  }

 private:
  [[gnu::noinline]] static void drop_uses(Block& block) noexcept {
    block.uses.clear();
    block.has_uses = false;
  }

  Block* first_ = nullptr;  // linked by `next`
  std::size_t size_ = 0;
};

}  // namespace cistern
