// Checkpoints of a private pool: what they hold, the way back to them, and what is refused.

#include <cistern/allocator.h>
#include <cistern/error.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

class PoolCheckpointTest : public ::testing::Test {
 protected:
  ~PoolCheckpointTest() override { EXPECT_NO_THROW(allocator_.check()); }

  PoolCheckpoint checkpoint() { return allocator_.checkpoint_pool(0, pool_.id()); }
  PoolRestored restore(const PoolCheckpoint& checkpoint) { return allocator_.restore_pool(0, checkpoint); }
  std::int64_t live_blocks() const { return pool_.stats().allocation.all.current; }

  SimulatedDriver driver_{{.devices = 2, .capacity_bytes = 256 * kMega, .backing = Backing::none}};
  CachingAllocator allocator_{
      {.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:classic")}};
  const StreamHandle stream_ = driver_.create_stream();
  const StreamHandle other_ = driver_.create_stream();
  const MemPool pool_{allocator_};
};

TEST_F(PoolCheckpointTest, ARestoreMakesLiveWhatWasLiveAndFreesTheRest) {
  void* kept = pool_.allocate(kMega, stream_);
  void* hole = pool_.allocate(kMega / 2, stream_);
  allocator_.deallocate(hole);
  const PoolCheckpoint before = checkpoint();

  void* later = pool_.allocate(kMega / 2, stream_);
  ASSERT_EQ(later, hole);
  void* large = pool_.allocate(30 * kMega, stream_);
  allocator_.deallocate(kept);
  const PoolRestored restored = restore(before);
  EXPECT_EQ(restored.live, std::vector<void*>{kept});
  EXPECT_EQ(restored.freed.size(), 2U);
  for (void* freed : restored.freed) EXPECT_TRUE(freed == later || freed == large);
  EXPECT_EQ(live_blocks(), 1);
  EXPECT_EQ(pool_.allocate(kMega / 2, stream_), hole) << "free as it was";
  EXPECT_EQ(pool_.allocate(30 * kMega, stream_), large) << "the segment is younger than the checkpoint, and free";
  allocator_.deallocate(kept);
}

TEST_F(PoolCheckpointTest, OneCheckpointIsRestoredAgainAndAgain) {
  void* kept = pool_.allocate(12 * kMega, stream_);
  const PoolCheckpoint before = checkpoint();
  void* branch = nullptr;
  for (int i = 0; i < 3; ++i) {
    void* block = pool_.allocate(13 * kMega, stream_);
    if (branch == nullptr) branch = block;
    EXPECT_EQ(block, branch) << "each branch finds the memory that the first one had";
    EXPECT_EQ(restore(before).live, std::vector<void*>{kept});
  }
  EXPECT_EQ(pool_.stats().allocated_bytes.all.current, 12 * static_cast<std::int64_t>(kMega));
}

TEST_F(PoolCheckpointTest, ItDescribesTheSegmentsAsTheyWere) {
  void* first = pool_.allocate(kMega, stream_);
  static_cast<void>(pool_.allocate(30 * kMega, stream_));
  const PoolCheckpoint before = checkpoint();
  allocator_.deallocate(first);
  EXPECT_EQ(before.pool(), pool_.id());
  const std::vector<SegmentInfo> segments = before.segments();
  ASSERT_EQ(segments.size(), 2U);
  EXPECT_LT(segments[0].address, segments[1].address);
  std::int64_t allocated = 0;
  for (const SegmentInfo& segment : segments) {
    EXPECT_EQ(segment.segment_pool_id.second, static_cast<std::int64_t>(pool_.id().second));
    allocated += segment.allocated_size;
  }
  EXPECT_EQ(allocated, 31 * static_cast<std::int64_t>(kMega));
}

// What is restored may be overwritten at once by its own stream: the work of others comes first.
TEST_F(PoolCheckpointTest, ItsStreamIsOrderedBehindTheStreamsThatUsedTheBlocks) {
  void* block = pool_.allocate(kMega, stream_);
  const PoolCheckpoint before = checkpoint();
  std::vector<int> order;
  allocator_.record_stream(block, other_);
  driver_.launch(other_, {}, {}, 10ms, [&] { order.push_back(1); });
  EXPECT_EQ(restore(before).live, std::vector<void*>{block});
  EXPECT_EQ(driver_.host_synchronizations(), 0U);
  driver_.launch(stream_, {}, {}, 1ms, [&] { order.push_back(2); });
  driver_.run_until_idle(stream_);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(PoolCheckpointTest, ARestoredBlockRemembersTheStreamsThatUsedIt) {
  void* block = pool_.allocate(kMega, stream_);
  allocator_.record_stream(block, other_);
  const PoolCheckpoint before = checkpoint();
  driver_.run_until_idle();
  EXPECT_EQ(restore(before).live, std::vector<void*>{block});
  driver_.occupy(other_, 10ms);
  allocator_.deallocate(block);
  EXPECT_NE(pool_.allocate(kMega, stream_), block);
  driver_.run_until_idle();
  EXPECT_EQ(pool_.allocate(kMega, stream_), block);
}

TEST_F(PoolCheckpointTest, APendingFreeOfThePoolRefusesBoth) {
  void* block = pool_.allocate(kMega, stream_);
  const PoolCheckpoint before = checkpoint();
  driver_.occupy(other_, 10ms);
  allocator_.deallocate(block, other_);
  EXPECT_THROW(static_cast<void>(checkpoint()), NotReady);
  EXPECT_THROW(static_cast<void>(restore(before)), NotReady);
  EXPECT_EQ(live_blocks(), 0) << "nothing was changed";
  driver_.run_until_idle();
  allocator_.deallocate(pool_.allocate(kMega, stream_));
  EXPECT_EQ(restore(before).live, std::vector<void*>{block});
}

TEST_F(PoolCheckpointTest, APendingFreeElsewhereRefusesNothing) {
  void* block = allocator_.allocate(kMega, stream_);
  driver_.occupy(other_, 10ms);
  allocator_.deallocate(block, other_);
  EXPECT_NO_THROW(static_cast<void>(restore(checkpoint())));
}

TEST_F(PoolCheckpointTest, ASegmentThatIsGoneRefusesTheRestore) {
  void* small = pool_.allocate(kMega, stream_);
  void* large = pool_.allocate(30 * kMega, stream_);
  const PoolCheckpoint before = checkpoint();
  allocator_.deallocate(large);
  ASSERT_EQ(pool_.trim(), 30 * kMega);
  EXPECT_THROW(static_cast<void>(restore(before)), InvalidArgument);
  EXPECT_EQ(live_blocks(), 1) << "nothing was changed";
  allocator_.deallocate(small);
}

TEST_F(PoolCheckpointTest, PoolsThatAreNotInUseAreRefused) {
  EXPECT_THROW(static_cast<void>(allocator_.checkpoint_pool(0, {})), InvalidArgument) << "the default pool";
  EXPECT_THROW(static_cast<void>(allocator_.checkpoint_pool(0, {3, 4})), InvalidArgument) << "two parts";
  EXPECT_THROW(static_cast<void>(allocator_.checkpoint_pool(0, {1234567, 0})), InvalidArgument) << "unknown";
  const PoolId graph{77, 0};
  allocator_.begin_allocate_to_pool(0, graph, PoolFilter::every_stream());
  void* block = allocator_.allocate(kMega, stream_);
  allocator_.end_allocate_to_pool(0, graph);
  const PoolCheckpoint before = allocator_.checkpoint_pool(0, graph);
  allocator_.release_pool(0, graph);
  EXPECT_THROW(static_cast<void>(allocator_.checkpoint_pool(0, graph)), InvalidArgument) << "released";
  EXPECT_THROW(static_cast<void>(allocator_.restore_pool(0, before)), InvalidArgument) << "released";
  allocator_.deallocate(block);
}

TEST_F(PoolCheckpointTest, ACheckpointOfAnotherDeviceIsRefused) {
  const PoolId id{78, 0};
  for (int device = 0; device < 2; ++device) {
    allocator_.begin_allocate_to_pool(device, id, PoolFilter::every_stream());
    allocator_.end_allocate_to_pool(device, id);
  }
  const PoolCheckpoint of_the_first = allocator_.checkpoint_pool(0, id);
  EXPECT_THROW(static_cast<void>(allocator_.restore_pool(1, of_the_first)), InvalidArgument);
}

// The order of the streams comes first: while the driver refuses it, every block stays as it is.
TEST_F(PoolCheckpointTest, WhatTheDriverRefusesLeavesThePoolAsItWas) {
  const PoolCheckpoint empty = checkpoint();
  void* block = pool_.allocate(kMega, stream_);
  allocator_.record_stream(block, other_);
  for (const char* entry : {"cuEventRecord", "cuStreamWaitEvent"}) {
    driver_.fail_call(entry, 1, CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_THROW(static_cast<void>(restore(empty)), DriverError) << entry;
    EXPECT_EQ(live_blocks(), 1) << entry;
    EXPECT_NO_THROW(allocator_.check()) << entry;
  }
  EXPECT_EQ(restore(empty).freed, std::vector<void*>{block});
  EXPECT_EQ(live_blocks(), 0);
}

}  // namespace
}  // namespace cistern
