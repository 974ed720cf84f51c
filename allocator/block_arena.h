#pragma once

// BlockArena: storage for the metadata of one heap, in chunks that are kept for reuse.
//
// Takes and gives back O(1). Not thread-safe: the owning heap holds its lock around every call.

#include "allocator/block.h"
#include "allocator/block_spares.h"

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
    return free_blocks_.size() >= blocks && free_segment_count_ >= segments;
  }
  // Requires: reserved. The fields are those of a new object, but priority.
  [[nodiscard]] Block* take_block() noexcept { return free_blocks_.take(); }
  [[nodiscard]] Segment* take_segment() noexcept;
  // How many are taken.
  [[nodiscard]] std::size_t blocks() const noexcept { return places() - free_blocks_.size(); }
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
  [[nodiscard]] std::size_t segment_places() const noexcept { return segment_chunks_.size() * kSegmentsPerChunk; }
  // visit(const Segment&), taken or not: one that is not taken is as a new object.
  template <class Visit>
  void for_each_segment_place(Visit&& visit) const;
  void give_back(Block* block) noexcept { free_blocks_.give(block); }
  // Those that are taken for nothing, for what takes and gives back some of them.
  [[nodiscard]] BlockSpares& spares() noexcept { return free_blocks_; }
  [[nodiscard]] const BlockSpares& spares() const noexcept { return free_blocks_; }
  // Makes there be at least one in `spares`, which count as taken. Throws std::bad_alloc, unchanged.
  void provide(BlockSpares& spares) {
    if (spares.size() == 0) fill(spares);
  }
  void give_back(Segment* segment) noexcept;

 private:
  static constexpr std::size_t kBlocksPerChunk = 256;
  static constexpr std::size_t kSegmentsPerChunk = 64;

  void make(std::size_t blocks, std::size_t segments);
  void fill(BlockSpares& spares);
  void add_block_chunk();
  void add_segment_chunk();

  std::vector<std::unique_ptr<Block[]>> block_chunks_;
  std::vector<std::unique_ptr<Segment[]>> segment_chunks_;
  BlockSpares free_blocks_;
  Segment* free_segments_ = nullptr;
  std::size_t free_segment_count_ = 0;
  std::size_t taken_segments_ = 0;
  std::size_t kept_blocks_ = 0;
  std::size_t kept_segments_ = 0;
};

// Chunks of segments are short: processors fetch ahead within a page, so the next chunk is asked for from here.
template <class Visit>
void BlockArena::for_each_segment_place(Visit&& visit) const {
  constexpr std::size_t kAhead = 16;
  const auto fetch = [](const Segment* segment) {
    for (std::size_t at = 0; at < sizeof(Segment); at += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(segment) + at);
  };
  for (std::size_t chunk = 0; chunk < segment_chunks_.size(); ++chunk) {
    const Segment* segments = segment_chunks_[chunk].get();
    const Segment* next = chunk + 1 < segment_chunks_.size() ? segment_chunks_[chunk + 1].get() : segments;
    for (std::size_t i = 0; i < kSegmentsPerChunk; ++i) {
      fetch(i + kAhead < kSegmentsPerChunk ? segments + i + kAhead : next + (i + kAhead - kSegmentsPerChunk));
      visit(segments[i]);
    }
  }
}

}  // namespace cistern
