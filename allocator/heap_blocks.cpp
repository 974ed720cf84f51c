// A block's way into use and back: the free one that is found, what is cut off and counted, and what becomes of it when
// nobody uses it any more.

#include "allocator/heap_blocks.h"

#include "allocator/range_search.h"

#include <utility>

namespace cistern {

Block* HeapBlocks::find_free_block(const Request& request) {
  // What `direct` has in its pools are segments that the driver refused to take back; but a
  // private pool caches, since its memory must stay as long as a graph may use it.
  if (!plain_search_ && !caches_ && request.pools->home == nullptr) return nullptr;
  if (collects_garbage() && request.pools->home == nullptr) searches_.count(request.kind, true);
  BlockPool& pool = request.pools->of(request.kind);
  Block* block = pool.best_fit(request.rounded);
  if (!plain_search_) block = choose_beside_ranges(pool, block, options_.policy == Policy::expandable);
  if (block == nullptr || !policy_.may_serve(block->bytes, request.rounded)) return nullptr;
  return block;
}

Block* HeapBlocks::take_free_block(const Request& request) {
  Block* block = find_free_block(request);
  if (block != nullptr) block->segment->pool->erase(block);
  return block;
}

// Requires: the block is in its pool, and one is reserved in the arena. Throws std::bad_alloc, unchanged.
Block* HeapBlocks::hand_out(Block* block, const Request& request, const Lock& lock) {
  map_of(*block).make_room();
  const bool splits = should_split(*block, request);
  return take_into_use(block, request, splits ? request.rounded : block->bytes, lock);
}

// A block from another pool, as take_from_overflow left it. Throws std::bad_alloc; it is free then.
Block* HeapBlocks::hand_out_overflow(Block* block, const Request& request, const Lock& lock) {
  put_back(block);
  arena_.reserve(1, 0);
  return hand_out(block, request, lock);
}

// Takes so many bytes at the low end of a free block into use. The free rest stays next to the segment's
// untouched end. Requires: the block is in its pool; one is reserved in the arena if it splits, and there is
// room in the block map.
Block* HeapBlocks::take_into_use(Block* free, const Request& request, std::size_t bytes, const Lock& lock) {
  const bool is_plain = free->segment->is_plain;
  InactiveSplitChange change;
  if (counts_splits(*free)) change = change_by_taking(*free, bytes);
  Block* block = take_front(free, bytes, *free->segment->pool, arena_.spares());
  block->kind = free->segment->kind;
  begin_use(block, request, change, lock);
  if (!is_plain) {
    if (PrivatePool* home = block->segment->owner->home)
      home->recorder.block_allocated(request.kind, as_signed(bytes), as_signed(request.bytes), change, block->oversize);
  }
  return block;
}

// Requires: there is room in the block map.
inline void HeapBlocks::begin_use(Block* block, const Request& request, const InactiveSplitChange& change,
                                  const Lock& lock) noexcept {
  map_of(*block).insert(block);
  block->state = BlockState::active_allocated;
  block->requested = request.bytes;
  block->tag = request.tag;
  block->oversize = policy_.is_oversize(block->bytes);
  block->stack = history_.keep(lock.stack);
  recorder_.block_allocated(request.kind, as_signed(block->bytes), as_signed(request.bytes), change, block->oversize,
                            attribution(*block), [&] { return point_of(*block, lock); });
}

// Requires: a block and room for it in the stream's map are reserved.
Block* HeapBlocks::hand_out(KnownPlaces::Number place, const Request& request, const Lock& lock) noexcept {
  Block* block = arena_.take_block();
  paged_->attach(*block, place);
  stream_heaps_.add_block(block->address, *block->segment->owner);
  Request counted = request;
  counted.kind = block->segment->kind;
  begin_use(block, counted, {}, lock);
  return block;
}

// Cuts what is behind `bytes` off a block in no pool, and puts it in its pool. Requires: a block is reserved.
void HeapBlocks::split(Block* block, std::size_t bytes) { put_in_pool(cut_back(block, bytes, arena_.spares())); }

// A block that nobody waits for, but in paged memory. Returns the free block that it is, or is a part of, now.
Block* HeapBlocks::free_at_once(Block* block) {
  const std::int64_t bytes = as_signed(block->bytes);
  const std::int64_t requested = as_signed(block->requested);
  const bool oversize = block->oversize;
  const bool is_plain = block->segment->is_plain;
  const Attribution of = attribution(*block);
  const InactiveSplitChange change = splits_by_freeing(*block, FreeNeighbours(*block));
  Block* settled = settle(block);
  const PoolKind kind = settled->segment->kind;
  recorder_.freed(kind, bytes, requested, change, oversize, of);
  PrivatePool* home = is_plain ? nullptr : settled->segment->owner->home;
  if (home == nullptr) return settled;
  home->recorder.freed(kind, bytes, requested, change, oversize);
  note_leftovers(*home, *settled);
  return settled;
}

// The same for one whose free was counted when it was requested; null for paged memory, which has no free blocks.
Block* HeapBlocks::complete_free(Block* block, const Lock& lock) {
  if (block->segment->is_paged()) return complete_paged_free(block, block->segment->paged_stream, lock);
  recorder_.trace(TraceAction::free_completed, [&] { return point_of(*block, lock); });
  const std::size_t bytes = block->bytes;
  const std::size_t requested = block->requested;
  const Attribution of = attribution(*block);
  const std::uint64_t grant = block->freed_in_grant;
  const InactiveSplitChange change = splits_by_freeing(*block, FreeNeighbours(*block));
  Block* settled = settle(block);
  const PoolKind kind = settled->segment->kind;
  recorder_.free_completed(kind, as_signed(bytes), as_signed(requested), change, of, grant);
  PrivatePool* home = settled->segment->owner->home;
  if (home == nullptr) {
    has_idle_ = is_stream_ordered();
    return settled;
  }
  home->recorder.free_completed(kind, as_signed(bytes), as_signed(requested), change);
  note_leftovers(*home, *settled);
  return settled;
}

// Puts a block whose free is complete into its pool. Returns the block that it is a part of.
Block* HeapBlocks::settle(Block* block) {
  if (std::exchange(block->has_uses, false)) retire(block->uses, *block->segment->owner);
  history_.let_go(block->stack);
  Block* settled = put_free(block, FreeNeighbours(*block), *block->segment->pool, arena_.spares());
  note_age(*settled);
  return settled;
}

void HeapBlocks::put_in_pool(Block* block) {
  block->state = BlockState::inactive;
  note_age(*block);
  block->segment->pool->insert(block);
}

// Undoes take_free_block, or keeps what a new segment brought.
void HeapBlocks::put_back(Block* block) { block->segment->pool->insert(block); }

}  // namespace cistern
