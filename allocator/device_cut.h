#pragma once

// DeviceCut: one device's heap as it was at one moment, copied under its lock and described later. What
// never changes, or not before the heap has a copy of its own, is shared instead: stacks, texts, and most of
// the history.

#include <cistern/mem_pool.h>
#include <cistern/snapshot.h>

#include "allocator/block_images.h"
#include "allocator/paged_shape.h"
#include "stats/history.h"
#include "stats/snapshot_stacks.h"

#include <cstddef>
#include <vector>

namespace cistern {

// Pages that are about to be unmapped are apart from those around them, but mapped like them: a snapshot,
// however it is taken, has one segment of the pages of a range that follow each other. `high`, the next
// one by address, becomes part of `low`.
[[nodiscard]] bool continues(const SegmentInfo& low, const SegmentInfo& high);
void lengthen(SegmentInfo& low, const SegmentInfo& high);

// Adds a block to what its segment says of all its blocks.
void count(SegmentInfo& segment, const BlockInfo& block);

// What a snapshot shows of a segment, without its blocks.
struct SegmentImage {
  std::uint64_t address;
  std::size_t bytes;
  std::int64_t stream;  // its number
  PoolId pool;
  std::uint64_t range_address;  // 0: the driver's own allocation
  std::size_t range_bytes;
  StackId stack;
  PoolKind kind;
};
[[nodiscard]] SegmentImage image_of(const Segment& segment) noexcept;
// What the blocks add up to is 0, and the stack by the heap's number - 1.
[[nodiscard]] SegmentInfo describe(const SegmentImage& image, int device);

struct DeviceCut {
  // What it takes: for memory to be there before the lock is taken.
  struct Size {
    std::size_t segments = 0;
    BlockImages::Size blocks;
    DeviceHistory::Size history;
    PagedCut::Size paged;
  };
  // Throws std::bad_alloc.
  void reserve(const Size& size);
  [[nodiscard]] bool has_room_for(const Size& size) const;
  // Moves all of it into `snapshot`, as that device's, the next one. The lock is not needed.
  void move_to(Snapshot& snapshot, int device, SnapshotStacks& stacks, const TickClock& clock);

  std::vector<SegmentImage> segments;
  std::vector<const Block*> first;  // of each segment: for its place alone
  BlockImages blocks;
  MemoryStats stats;
  DeviceHistory::Copy history;
  PagedCut paged;
};

}  // namespace cistern
