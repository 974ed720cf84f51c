// Reuse, and what the driver says of it.

#include "tests/gpu/heap_on_device.h"

namespace cistern {
namespace {

class AllocatorOnDevice : public HeapOnDevice {};

TEST_F(AllocatorOnDevice, AFreedBlockServesItsOwnStreamAgainAtOnce) {
  const Stream stream = Stream::create();
  Roadblock busy(stream);
  void* first = allocate(32 * kMiB, stream);
  deallocate(first);
  void* second = allocate(32 * kMiB, stream);
  EXPECT_EQ(second, first);
  EXPECT_EQ(memory_stats().num_device_alloc, 1);
  busy.open();
  deallocate(second);
}

TEST_F(AllocatorOnDevice, AnotherStreamGetsOtherMemory) {
  const Stream one = Stream::create(), other = Stream::create();
  void* first = allocate(32 * kMiB, one);
  deallocate(first);
  void* second = allocate(32 * kMiB, other);
  EXPECT_NE(second, first);
  deallocate(second);
  EXPECT_EQ(memory_reserved(), 64 * kMiB);
}

TEST_F(AllocatorOnDevice, AllocatesOnTheCurrentStreamUnlessToldOtherwise) {
  const Stream stream = Stream::create();
  void* block = nullptr;
  {
    const StreamGuard guard(stream);
    block = allocate(32 * kMiB);
  }
  deallocate(block);
  EXPECT_EQ(allocate(32 * kMiB, stream), block);
  deallocate(block);
}

TEST_F(AllocatorOnDevice, WhatIsReservedIsWhatTheDriverMisses) {
  const std::size_t free_before = memory_info().free;
  void* large = allocate(512 * kMiB);
  void* small = allocate(1000);
  const std::size_t taken = free_before - memory_info().free;
  EXPECT_EQ(memory_reserved(), 514 * kMiB);
  EXPECT_GE(taken, memory_reserved());
  EXPECT_LE(taken, memory_reserved() + 16 * kMiB);  // the driver's own granules and books
  deallocate(large);
  deallocate(small);
}

TEST_F(AllocatorOnDevice, EmptyCacheGivesTheMemoryBackToTheDriver) {
  void* live = allocate(64 * kMiB);
  void* block = allocate(512 * kMiB);
  deallocate(block);
  EXPECT_EQ(memory_reserved(), 576 * kMiB);
  const std::size_t free_while_cached = memory_info().free;
  empty_cache();
  EXPECT_EQ(memory_reserved(), 64 * kMiB);
  EXPECT_GE(memory_info().free, free_while_cached + 512 * kMiB);
  deallocate(live);
}

TEST_F(AllocatorOnDevice, TrimStopsAtItsTarget) {
  void* first = allocate(128 * kMiB);
  void* second = allocate(256 * kMiB);
  deallocate(first);
  deallocate(second);
  EXPECT_EQ(trim(128 * kMiB), 256 * kMiB);
  EXPECT_EQ(memory_reserved(), 128 * kMiB);
}

TEST_F(AllocatorOnDevice, TheSnapshotAddsUpToTheStatistics) {
  void* first = allocate(100);
  void* second = allocate(3 * kMiB);
  deallocate(first);
  std::int64_t reserved = 0, allocated = 0;
  for (const SegmentInfo& segment : memory_snapshot().segments) {
    reserved += segment.total_size;
    for (const BlockInfo& block : segment.blocks) {
      if (block.state == BlockState::active_allocated) allocated += block.size;
    }
  }
  EXPECT_EQ(static_cast<std::size_t>(reserved), memory_reserved());
  EXPECT_EQ(static_cast<std::size_t>(allocated), memory_allocated());
  EXPECT_EQ(memory_allocated(), 3 * kMiB);
  deallocate(second);
}

}  // namespace
}  // namespace cistern
