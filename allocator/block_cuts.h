#pragma once

// How blocks of one segment are cut from each other and grown together.
//
// What makes or drops a Block object is given the spares that it takes from or gives to, and the pool of the
// segment's free blocks: who holds a stream's lock alone has those at hand, and these look at no segment but at its
// ends.
// Not thread-safe: guarded by the lock of the segment's stream. O(1), but for the pool.

#include "allocator/block.h"
#include "allocator/block_pool.h"
#include "allocator/block_spares.h"
#include "allocator/prefetch.h"

#include <cstddef>
#include <cstdint>

namespace cistern {

// How inactive splits change when the low `bytes` of a free block are taken into use.
[[nodiscard]] inline InactiveSplitChange change_by_taking(const Block& free, std::size_t bytes) {
  const auto taken = static_cast<std::int64_t>(bytes);
  if (bytes == free.bytes) return free.is_split() ? InactiveSplitChange{-1, -taken} : InactiveSplitChange{};
  return free.is_split() ? InactiveSplitChange{0, -taken}
                         : InactiveSplitChange{1, static_cast<std::int64_t>(free.bytes) - taken};
}

// Takes the low end of a free block of `pool` into a block in no pool. The free rest stays next to
// the segment's untouched end. Requires: a spare block, unless it takes all.
[[nodiscard]] inline Block* take_front(Block* free, std::size_t bytes, BlockPool& pool, BlockSpares& spares) {
  if (bytes == free->bytes) {
    pool.erase(free);
    return free;
  }
  Block* front = spares.take();
  front->address = free->address;
  front->bytes = bytes;
  front->segment = free->segment;
  front->previous = free->previous;
  front->next = free;
  (front->previous != nullptr ? front->previous->next : front->segment->first) = front;
  pool.loosen(free);
  free->previous = front;
  free->address += bytes;
  free->bytes -= bytes;
  return front;
}

// Cuts what is behind `bytes` off a block in no pool into one in no pool, which it returns. Requires: a spare.
[[nodiscard]] inline Block* cut_back(Block* block, std::size_t bytes, BlockSpares& spares) {
  Block* rest = spares.take();
  rest->address = block->address + bytes;
  rest->bytes = block->bytes - bytes;
  rest->segment = block->segment;
  rest->previous = block;
  rest->next = block->next;
  (rest->next != nullptr ? rest->next->previous : rest->segment->last) = rest;
  block->next = rest;
  block->bytes = bytes;
  return rest;
}

// Null where there is none, or it is not free.
struct FreeNeighbours {
  explicit FreeNeighbours(const Block& block) {
    fetch_links(block.previous);
    fetch_links(block.next);
    before = free_or_null(block.previous);
    behind = free_or_null(block.next);
  }
  // Has the processor bring a neighbour's links in a tree while the cache line that says whether it is in one is
  // under way.
  static void fetch_links(const Block* neighbour) {
    if (neighbour != nullptr) prefetch(&neighbour->left);
  }
  [[nodiscard]] static Block* free_or_null(Block* block) {
    // By masks, for what lies beside a block cannot be foreseen: a jump on it would be mispredicted every third time.
    static constexpr BlockState kNone = BlockState::active_allocated;
    const auto mask_of = [](bool condition) { return ~(std::uintptr_t{condition} - 1); };
    const auto address = reinterpret_cast<std::uintptr_t>(block != nullptr ? &block->state : nullptr);
    const auto* const state = reinterpret_cast<const BlockState*>(
        address | (reinterpret_cast<std::uintptr_t>(&kNone) & mask_of(address == 0)));
    return reinterpret_cast<Block*>(reinterpret_cast<std::uintptr_t>(block) & mask_of(*state == BlockState::inactive));
  }

  Block* before = nullptr;
  Block* behind = nullptr;
};

// How inactive splits change when the block becomes free.
[[nodiscard]] inline InactiveSplitChange change_by_freeing(const Block& block, const FreeNeighbours& free) {
  const Block& first = free.before != nullptr ? *free.before : block;
  const Block& last = free.behind != nullptr ? *free.behind : block;
  const std::int64_t joined = std::int64_t{free.before != nullptr} + std::int64_t{free.behind != nullptr};
  const auto bytes = static_cast<std::int64_t>(block.bytes);
  if ((first.previous != nullptr) | (last.next != nullptr)) return {1 - joined, bytes};
  // All of the segment, which is no split: what its free neighbours were is one no more.
  return {-joined, bytes - static_cast<std::int64_t>(last.address + last.bytes - first.address)};
}

// `block` becomes as large as it and its neighbour are, which is in no pool and is gone.
inline void absorb(Block* block, Block* neighbour, BlockSpares& spares) {
  if (neighbour == block->previous) {
    block->address = neighbour->address;
    block->previous = neighbour->previous;
    (block->previous != nullptr ? block->previous->next : block->segment->first) = block;
  } else {
    block->next = neighbour->next;
    (block->next != nullptr ? block->next->previous : block->segment->last) = block;
  }
  block->bytes += neighbour->bytes;
  spares.give(neighbour);
}

// Puts a block in no pool into its pool. A free neighbour takes it in; with two, one of them goes. Returns the
// block that it is a part of. Requires: `free` are its neighbours.
inline Block* put_free(Block* block, const FreeNeighbours& free, BlockPool& pool, BlockSpares& spares) {
  if (free.before == nullptr && free.behind == nullptr) {
    block->state = BlockState::inactive;
    pool.insert(block);
    return block;
  }
  Block* const settled =
      free.before == nullptr || (free.behind != nullptr && pool.is_loose(free.behind)) ? free.behind : free.before;
  if (free.before != nullptr && free.behind != nullptr) {
    Block* const other = settled == free.before ? free.behind : free.before;
    pool.erase(other);
    absorb(block, other, spares);
  }
  pool.loosen(settled);
  absorb(settled, block, spares);
  return settled;
}

// Takes a free neighbour, if it is one, out of its pool and into `block`.
inline void merge(Block* block, Block* neighbour, BlockSpares& spares) {
  if (FreeNeighbours::free_or_null(neighbour) == nullptr) return;
  neighbour->segment->pool->erase(neighbour);
  absorb(block, neighbour, spares);
}

}  // namespace cistern
