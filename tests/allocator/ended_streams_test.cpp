// Streams that are destroyed while the allocator has memory of theirs.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <vector>

#include "runtime/driver_api.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

class EndedStreamsTest : public ::testing::Test {
 protected:
  ~EndedStreamsTest() override { EXPECT_NO_THROW(allocator_.check()); }

  void end(StreamHandle stream) {
    allocator_.release_stream(stream);
    driver_.destroy_stream(stream);
  }

  SimulatedDriver driver_{{.devices = 2, .capacity_bytes = 128 * kMega, .backing = Backing::none}};
  CachingAllocator allocator_{
      {.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:classic")}};
  const StreamHandle heir_ = driver_.create_stream();
};

// A user's own capture, of which the allocator is not told.
TEST_F(EndedStreamsTest, ARequestForACapturedStreamLeavesTheCaptureWhole) {
  const StreamHandle stream = driver_.create_stream();
  allocator_.deallocate(allocator_.allocate(30 * kMega, stream));
  end(stream);
  ASSERT_EQ(driver_.api().stream_begin_capture(heir_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  void* block = allocator_.allocate(30 * kMega, heir_);
  CUgraph graph = nullptr;
  EXPECT_EQ(driver_.api().stream_end_capture(heir_, &graph), CUDA_SUCCESS);
  EXPECT_EQ(driver_.api().graph_destroy(graph), CUDA_SUCCESS);
  allocator_.deallocate(block);
}

TEST_F(EndedStreamsTest, CachedMemoryServesAnotherStreamWithoutADriverAllocation) {
  const StreamHandle stream = driver_.create_stream();
  void* block = allocator_.allocate(30 * kMega, stream);
  allocator_.deallocate(block);
  end(stream);
  EXPECT_EQ(allocator_.allocate(30 * kMega, heir_), block);
  EXPECT_EQ(allocator_.memory_stats().num_device_alloc, 1);
}

// The heir's work waits for what the stream still had queued, and the host for nothing.
TEST_F(EndedStreamsTest, TheHeirsWorkIsOrderedBehindTheWorkThatWasQueued) {
  const StreamHandle stream = driver_.create_stream();
  allocator_.deallocate(allocator_.allocate(30 * kMega, stream));
  std::vector<int> order;
  driver_.launch(stream, {}, {}, 10ms, [&] { order.push_back(1); });
  end(stream);
  static_cast<void>(allocator_.allocate(30 * kMega, heir_));
  EXPECT_EQ(driver_.host_synchronizations(), 0U);
  driver_.launch(heir_, {}, {}, 1ms, [&] { order.push_back(2); });
  driver_.run_until_idle();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(EndedStreamsTest, AReusedHandleInheritsNothing) {
  const StreamHandle stream = driver_.create_stream();
  void* block = allocator_.allocate(kMega, stream);
  driver_.occupy(stream, 10ms);
  allocator_.deallocate(block);
  driver_.destroy_stream(stream);
  const StreamHandle reborn = driver_.create_stream();
  EXPECT_NE(allocator_.allocate(kMega, reborn), block) << "nothing ordered it behind the old stream's work";
}

TEST_F(EndedStreamsTest, WithoutAWordItsMemoryGoesBackWithTheNextFlush) {
  const StreamHandle stream = driver_.create_stream();
  allocator_.deallocate(allocator_.allocate(100 * kMega, stream));
  driver_.destroy_stream(stream);
  EXPECT_NE(allocator_.allocate(100 * kMega, heir_), nullptr);
  EXPECT_EQ(allocator_.memory_stats().num_alloc_retries, 1);
}

TEST_F(EndedStreamsTest, ABlockThatIsFreedLaterFollows) {
  const StreamHandle stream = driver_.create_stream();
  void* block = allocator_.allocate(30 * kMega, stream);
  end(stream);
  EXPECT_NE(allocator_.allocate(30 * kMega, heir_), block);
  allocator_.deallocate(block);
  EXPECT_EQ(allocator_.allocate(30 * kMega, heir_), block);
}

TEST_F(EndedStreamsTest, ABlockThatAnotherStreamUsesFollowsWhenThatIsOver) {
  const StreamHandle stream = driver_.create_stream();
  const StreamHandle reader = driver_.create_stream();
  void* block = allocator_.allocate(30 * kMega, stream);
  driver_.occupy(reader, 1ms);
  allocator_.deallocate(block, reader);
  end(stream);
  EXPECT_NE(allocator_.allocate(30 * kMega, heir_), block);
  driver_.run_until_idle();
  EXPECT_EQ(allocator_.allocate(30 * kMega, heir_), block);
}

TEST_F(EndedStreamsTest, APartlyUsedSegmentStaysUntilItIsWhole) {
  const StreamHandle stream = driver_.create_stream();
  void* live = allocator_.allocate(kMega, stream);
  end(stream);
  void* fresh = allocator_.allocate(1000, heir_);
  EXPECT_NE(reinterpret_cast<std::uintptr_t>(fresh) / (2 * kMega),
            reinterpret_cast<std::uintptr_t>(live) / (2 * kMega));
  allocator_.deallocate(live);
  EXPECT_NO_THROW(allocator_.check());
}

TEST_F(EndedStreamsTest, APrivatePoolKeepsItsMemoryToItself) {
  const MemPool pool(allocator_);
  const StreamHandle stream = driver_.create_stream();
  void* block = pool.allocate(30 * kMega, stream);
  allocator_.deallocate(block);
  end(stream);
  EXPECT_NE(allocator_.allocate(30 * kMega, heir_), block);
  EXPECT_EQ(pool.allocate(30 * kMega, heir_), block);
}

TEST_F(EndedStreamsTest, WithoutAnEventNobodyInherits) {
  const StreamHandle stream = driver_.create_stream();
  void* block = allocator_.allocate(30 * kMega, stream);
  allocator_.deallocate(block);
  driver_.occupy(stream, 1ms);
  driver_.fail_call("cuEventRecord", 1, CUDA_ERROR_LAUNCH_FAILED);
  end(stream);
  EXPECT_NE(allocator_.allocate(30 * kMega, heir_), block);
  allocator_.empty_cache();
  EXPECT_EQ(driver_.used_bytes(), 30 * kMega);
}

TEST_F(EndedStreamsTest, AWaitThatIsRefusedLeavesTheMemoryWhereItIs) {
  const StreamHandle stream = driver_.create_stream();
  void* block = allocator_.allocate(30 * kMega, stream);
  allocator_.deallocate(block);
  driver_.occupy(stream, 1ms);
  end(stream);
  driver_.fail_call("cuStreamWaitEvent", 1, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_NE(allocator_.allocate(30 * kMega, heir_), block);
  EXPECT_NO_THROW(allocator_.check());
  EXPECT_EQ(allocator_.allocate(30 * kMega, heir_), block);
}

// An event is kept for each stream that is.
TEST_F(EndedStreamsTest, APrivatePoolForgetsStreamsThatAreOver) {
  const MemPool pool(allocator_);
  for (int i = 0; i < 100; ++i) {
    const StreamHandle stream = driver_.create_stream();
    allocator_.deallocate(pool.allocate(30 * kMega, stream));
    end(stream);
  }
  EXPECT_LE(driver_.calls("cuEventCreate"), 20U);
}

TEST_F(EndedStreamsTest, TheEventsOfStreamsAreReused) {
  for (int i = 0; i < 50; ++i) {
    const StreamHandle stream = driver_.create_stream();
    allocator_.deallocate(allocator_.allocate(30 * kMega, stream));
    end(stream);
    allocator_.empty_cache();
  }
  EXPECT_LE(driver_.calls("cuEventCreate"), 2U);
}

}  // namespace
}  // namespace cistern
