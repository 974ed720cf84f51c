#include "allocator/stream_heap.h"

namespace cistern {
namespace {

std::int64_t as_signed(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

Block* free_or_null(Block* block) { return block != nullptr && block->state == BlockState::inactive ? block : nullptr; }

// `block` becomes as large as it and its neighbour are, which is in no pool and is gone.
void absorb(Block* block, Block* neighbour, BlockSpares& spares) {
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

}  // namespace

InactiveSplitChange change_by_taking(const Block& free, std::size_t bytes) {
  if (bytes == free.bytes) return free.is_split() ? InactiveSplitChange{-1, -as_signed(bytes)} : InactiveSplitChange{};
  return free.is_split() ? InactiveSplitChange{0, -as_signed(bytes)}
                         : InactiveSplitChange{1, as_signed(free.bytes - bytes)};
}

Block* take_front(Block* free, std::size_t bytes, BlockSpares& spares) {
  BlockPool& pool = *free->segment->pool;
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

Block* cut_back(Block* block, std::size_t bytes, BlockSpares& spares) {
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

InactiveSplitChange change_by_freeing(const Block& block) {
  const Block* const before = free_or_null(block.previous);
  const Block* const behind = free_or_null(block.next);
  InactiveSplitChange change;
  std::size_t bytes = block.bytes;
  for (const Block* neighbour : {before, behind}) {
    if (neighbour == nullptr) continue;
    change.count -= 1;
    change.bytes -= as_signed(neighbour->bytes);
    bytes += neighbour->bytes;
  }
  const bool is_first = (before != nullptr ? before : &block)->previous == nullptr;
  const bool is_last = (behind != nullptr ? behind : &block)->next == nullptr;
  if (is_first && is_last) return change;
  change.count += 1;
  change.bytes += as_signed(bytes);
  return change;
}

Block* put_free(Block* block, BlockSpares& spares) {
  Block* const before = free_or_null(block->previous);
  Block* const behind = free_or_null(block->next);
  BlockPool& pool = *block->segment->pool;
  if (before == nullptr && behind == nullptr) {
    block->state = BlockState::inactive;
    pool.insert(block);
    return block;
  }
  Block* const settled = before == nullptr || (behind != nullptr && pool.is_loose(behind)) ? behind : before;
  if (before != nullptr && behind != nullptr) merge(block, settled == before ? behind : before, spares);
  pool.loosen(settled);
  absorb(settled, block, spares);
  return settled;
}

void merge(Block* block, Block* neighbour, BlockSpares& spares) {
  if (free_or_null(neighbour) == nullptr) return;
  neighbour->segment->pool->erase(neighbour);
  absorb(block, neighbour, spares);
}

}  // namespace cistern
