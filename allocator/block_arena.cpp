#include "allocator/block_arena.h"

#include <algorithm>
#include <new>

namespace cistern {
namespace {

constexpr std::size_t kSparesAtOnce = 128;

// Spreads consecutive numbers over all bits (the finaliser of splitmix64): treap
// priorities need to look random, and to be the same in every run.
std::uint32_t scatter(std::uint64_t number) {
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9ULL;
  number = (number ^ (number >> 27)) * 0x94d049bb133111ebULL;
  return static_cast<std::uint32_t>((number ^ (number >> 31)) >> 32);
}

}  // namespace

void BlockArena::make(std::size_t blocks, std::size_t segments) {
  try {
    while (free_blocks_.size() < blocks + kept_blocks_) add_block_chunk();
    while (free_segment_count_ < segments + kept_segments_) add_segment_chunk();
  } catch (const std::bad_alloc&) {
    if (!has(blocks, segments)) throw;
  }
}

// More than one where there are more than what is kept back: the next of them cost no lock. Not all: where few are left
// other streams give some of theirs, before there are more.
void BlockArena::fill(BlockSpares& spares) {
  reserve(1, 0);
  const std::size_t beside_kept = free_blocks_.size() > kept_blocks_ ? free_blocks_.size() - kept_blocks_ : 0;
  free_blocks_.move_to(spares, std::clamp(beside_kept / 2, std::size_t{1}, kSparesAtOnce));
}

void BlockArena::keep_back(std::size_t blocks, std::size_t segments) noexcept {
  const bool is_more = blocks > kept_blocks_ || segments > kept_segments_;
  kept_blocks_ = blocks;
  kept_segments_ = segments;
  try {
    if (is_more) reserve(0, 0);
  } catch (...) {  // the next one that asks tries again
  }
}

Segment* BlockArena::take_segment() noexcept {
  Segment* segment = free_segments_;
  free_segments_ = segment->next;
  --free_segment_count_;
  segment->next = nullptr;
  ++taken_segments_;
  return segment;
}

void BlockArena::give_back(Segment* segment) noexcept {
  --taken_segments_;
  *segment = Segment{};
  segment->next = free_segments_;
  free_segments_ = segment;
  ++free_segment_count_;
}

void BlockArena::add_block_chunk() {
  auto chunk = std::make_unique<Block[]>(kBlocksPerChunk);
  const std::size_t first_number = block_chunks_.size() * kBlocksPerChunk;
  block_chunks_.push_back(std::move(chunk));
  Block* blocks = block_chunks_.back().get();
  for (std::size_t i = kBlocksPerChunk; i-- > 0;) {
    blocks[i].priority = scatter(first_number + i + 1);
    free_blocks_.give(&blocks[i]);
  }
}

void BlockArena::add_segment_chunk() {
  segment_chunks_.push_back(std::make_unique<Segment[]>(kSegmentsPerChunk));
  Segment* segments = segment_chunks_.back().get();
  for (std::size_t i = kSegmentsPerChunk; i-- > 0;) {
    segments[i].next = free_segments_;
    free_segments_ = &segments[i];
  }
  free_segment_count_ += kSegmentsPerChunk;
}

}  // namespace cistern
