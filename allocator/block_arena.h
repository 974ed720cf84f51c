#pragma once

// BlockArena: storage for the metadata of one heap, in chunks that are kept for reuse.
//
// Not thread-safe: the owning heap holds its lock around every call.

#include "allocator/block.h"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace cistern {

class BlockArena {
 public:
  // Makes the next `blocks` calls of take_block and `segments` of take_segment succeed without
  // allocating, beside what is kept back, which serves as well when the host has no memory. Throws
  // std::bad_alloc and changes nothing that shows.
  void reserve(std::size_t blocks, std::size_t segments = 1) {
    if (!has(blocks + kept_blocks_, segments + kept_segments_)) make(blocks, segments);
  }
  // Keeps so many back from now on, for what must not fail; as far as there is memory.
  void keep_back(std::size_t blocks, std::size_t segments) noexcept;
  // Whether so many are at hand.
  [[nodiscard]] bool has(std::size_t blocks, std::size_t segments) const noexcept {
    return free_block_count_ >= blocks && free_segment_count_ >= segments;
  }
  // Requires: reserved. The fields are those of a new object, but priority.
  [[nodiscard]] Block* take_block() noexcept {
    Block* block = free_blocks_;
    free_blocks_ = block->next;
    --free_block_count_;
    ++taken_blocks_;
    block->next = nullptr;
    return block;
  }
  [[nodiscard]] Segment* take_segment() noexcept;
  // How many are taken.
  [[nodiscard]] std::size_t blocks() const noexcept { return taken_blocks_; }
  [[nodiscard]] std::size_t segments() const noexcept { return taken_segments_; }
  // Of blocks, taken or not.
  [[nodiscard]] std::size_t places() const noexcept { return block_chunks_.size() * kBlocksPerChunk; }
  [[nodiscard]] std::size_t block_chunks() const noexcept { return block_chunks_.size(); }
  // visit(std::span<const Block>), taken or not.
  template <class Visit>
  void for_each_chunk(Visit&& visit) const {
    for (const std::unique_ptr<Block[]>& chunk : block_chunks_)
      visit(std::span<const Block>(chunk.get(), kBlocksPerChunk));
  }
  void give_back(Block* block) noexcept {
    block->address = 0;
    block->bytes = 0;
    block->state = BlockState::inactive;
    block->oversize = false;
    block->free_since = 0;
    block->pending_events = 0;
    block->left = block->right = block->previous = nullptr;
    block->segment = nullptr;
    block->requested = 0;
    block->tag = kUntagged;
    block->uses.clear();
    block->next = free_blocks_;
    free_blocks_ = block;
    ++free_block_count_;
    --taken_blocks_;
  }
  void give_back(Segment* segment) noexcept;

 private:
  static constexpr std::size_t kBlocksPerChunk = 256;
  static constexpr std::size_t kSegmentsPerChunk = 64;

  void make(std::size_t blocks, std::size_t segments);
  void add_block_chunk();
  void add_segment_chunk();

  std::vector<std::unique_ptr<Block[]>> block_chunks_;
  std::vector<std::unique_ptr<Segment[]>> segment_chunks_;
  Block* free_blocks_ = nullptr;  // linked by `next`
  std::size_t free_block_count_ = 0;
  Segment* free_segments_ = nullptr;
  std::size_t free_segment_count_ = 0;
  std::size_t taken_blocks_ = 0;
  std::size_t taken_segments_ = 0;
  std::size_t kept_blocks_ = 0;
  std::size_t kept_segments_ = 0;
};

}  // namespace cistern
