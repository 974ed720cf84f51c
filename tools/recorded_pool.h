#pragma once

// RecordedPool: what a snapshot shows of the pool that serves a request, as the allocator's own structures, so
// that its own searches can be asked.
//
// Not thread-safe.

#include <cistern/snapshot.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "allocator/address_range.h"
#include "allocator/block_arena.h"
#include "allocator/block_pool.h"

namespace cistern {

// How expandable segments come to hold a request that no free block holds.
struct SegmentGrowth {
  std::uint64_t address = 0;  // of the block that it is cut from then; 0: in an address range that is reserved first
  std::size_t page_bytes = 0;
  std::size_t mapped_bytes = 0;  // pages that the driver is asked for, between free blocks
  std::size_t block_bytes = 0;   // of the block, before it is cut
};

class RecordedPool {
 public:
  RecordedPool() = default;
  RecordedPool(const RecordedPool&) = delete;
  RecordedPool& operator=(const RecordedPool&) = delete;

  // A segment of the pool, with all its blocks.
  void add(const SegmentInfo& segment);
  // Of all the segments, by size and address.
  [[nodiscard]] const BlockPool& free_blocks() const { return free_blocks_; }
  // At the lowest place with room, in pages of so many bytes. Where an address range that a segment lies in is
  // not known it is taken to begin with the first and to have no end: PyTorch reserves more than the device has.
  [[nodiscard]] SegmentGrowth growth_for(std::size_t bytes, std::size_t page_bytes);

 private:
  [[nodiscard]] AddressRange& range_of(const SegmentInfo& segment);

  BlockArena arena_;
  std::deque<AddressRange> ranges_;
  BlockPool::Trees trees_{};
  BlockPool free_blocks_{PoolKind::large, trees_};
};

// visit(begin, end) for each run of free and pending blocks side by side, which become one free block: offsets in
// the segment.
template <class Visit>
void for_each_run(const SegmentInfo& segment, Visit&& visit) {
  std::int64_t begin = 0;
  std::int64_t at = 0;
  for (const BlockInfo& block : segment.blocks) {
    if (block.state == BlockState::active_allocated) {
      if (at != begin) visit(begin, at);
      begin = at + block.size;
    }
    at += block.size;
  }
  if (at != begin) visit(begin, at);
}
// What a flush leaves of such a run of the default pool: of an expandable segment the parts of pages at its two ends.
[[nodiscard]] std::array<std::int64_t, 2> kept_of_run(const SegmentInfo& segment, std::int64_t begin, std::int64_t end);
// What a flush would give back of a free block: the allocator's rule of the same name.
[[nodiscard]] std::int64_t releasable_bytes(const SegmentInfo& segment, const BlockInfo& block);
// The bytes of whole pages in what is free, or will be when the work that is waited for is done, of an expandable
// segment.
[[nodiscard]] std::int64_t releasable_pages(const SegmentInfo& segment);

}  // namespace cistern
