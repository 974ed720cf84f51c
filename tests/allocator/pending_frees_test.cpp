// Frees that wait for other streams: the guard that keeps memory from work that still uses it.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/stream_access.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

class PendingFreesTest : public ::testing::Test {
 protected:
  SimulatedDriver driver_{{.devices = 2, .capacity_bytes = 512 * kMega, .backing = Backing::none}};
  CachingAllocator allocator_{
      {.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:classic")}};
  const StreamHandle owner_ = driver_.create_stream();
  const StreamHandle reader_ = driver_.create_stream();
};

TEST_F(PendingFreesTest, ABlockWaitsForTheRecordedStream) {
  void* first = allocator_.allocate(kMega, owner_);
  driver_.occupy(reader_, 10ms);
  allocator_.record_stream(first, reader_);
  allocator_.deallocate(first);
  EXPECT_NE(allocator_.allocate(kMega, owner_), first);
  driver_.run_until_idle(reader_);
  EXPECT_EQ(allocator_.allocate(kMega, owner_), first);
  EXPECT_EQ(driver_.host_synchronizations(), 0U);
}

TEST_F(PendingFreesTest, WorkQueuedAfterTheFreeIsNotWaitedFor) {
  void* first = allocator_.allocate(kMega, owner_);
  allocator_.record_stream(first, reader_);
  allocator_.deallocate(first);
  driver_.occupy(reader_, 10ms);
  EXPECT_EQ(allocator_.allocate(kMega, owner_), first);
}

// A user's own capture, of which the allocator is not told.
TEST_F(PendingFreesTest, AFreeWhileTheRecordedStreamCapturesIsGuardedAfterTheCapture) {
  void* first = allocator_.allocate(kMega, owner_);
  driver_.occupy(reader_, 10ms);
  allocator_.record_stream(first, reader_);
  ASSERT_EQ(driver_.api().stream_begin_capture(reader_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  allocator_.deallocate(first);
  EXPECT_NE(allocator_.allocate(kMega, owner_), first);
  CUgraph graph = nullptr;
  ASSERT_EQ(driver_.api().stream_end_capture(reader_, &graph), CUDA_SUCCESS);
  EXPECT_EQ(driver_.api().graph_destroy(graph), CUDA_SUCCESS);
  EXPECT_NE(allocator_.allocate(kMega, owner_), first);
  driver_.run_until_idle(reader_);
  EXPECT_EQ(allocator_.allocate(kMega, owner_), first);
}

// The wait for the device that such a free takes otherwise would invalidate the capture.
TEST_F(PendingFreesTest, AFreeOfWhatADestroyedStreamUsedWaitsForAnotherThreadsCapture) {
  const StreamHandle gone = driver_.create_stream();
  void* first = allocator_.allocate(kMega, owner_);
  allocator_.record_stream(first, gone);
  driver_.destroy_stream(gone);
  const PoolId graph{7, 0};
  std::thread([&] { allocator_.begin_allocate_to_pool(0, graph, PoolFilter::stream(reader_)); }).join();
  ASSERT_EQ(driver_.api().stream_begin_capture(reader_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  allocator_.deallocate(first);
  CUstreamCaptureStatus status{};
  EXPECT_EQ(driver_.api().stream_is_capturing(reader_, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_NE(allocator_.allocate(kMega, owner_), first);
  CUgraph captured = nullptr;
  EXPECT_EQ(driver_.api().stream_end_capture(reader_, &captured), CUDA_SUCCESS);
  EXPECT_EQ(driver_.api().graph_destroy(captured), CUDA_SUCCESS);
  allocator_.end_allocate_to_pool(0, graph);
  EXPECT_EQ(allocator_.allocate(kMega, owner_), first);
}

// Its stream's queue is empty to everybody while somebody waits for what was in it.
TEST_F(PendingFreesTest, WhatCouldNotBeAwaitedIsPendingAgainAlthoughOthersPolledMeanwhile) {
  struct Refusing {
    SimulatedDriver& driver;
    CachingAllocator* allocator = nullptr;
    StreamHandle third = nullptr;
  } refusing{driver_, nullptr, driver_.create_stream()};
  DriverApi api = driver_.api();
  api.event_synchronize = {&refusing, [](void* self, CUevent) {
                             const auto& now = *static_cast<Refusing*>(self);
                             // Another thread's doings, for the lock is given up.
                             now.allocator->deallocate(now.allocator->allocate(kMega), now.third);
                             now.driver.run_until_idle(now.third);
                             static_cast<void>(now.allocator->allocate(kMega));
                             return CUDA_ERROR_LAUNCH_FAILED;
                           }};
  CachingAllocator allocator({.driver = &api, .options = AllocatorOptions::parse("oom_dump:off,policy:classic")});
  refusing.allocator = &allocator;
  void* first = allocator.allocate(kMega, owner_);
  driver_.occupy(reader_, 10ms);
  allocator.deallocate(first, reader_);
  EXPECT_THROW(allocator.empty_cache(), DriverError);
  EXPECT_NO_THROW(allocator.check());
  EXPECT_NE(allocator.allocate(kMega, owner_), first);
  driver_.run_until_idle(reader_);
  EXPECT_EQ(allocator.allocate(kMega, owner_), first);
}

// The events and streams have contexts of their own.
TEST_F(PendingFreesTest, AThreadWithoutAContextMakesThreeCallsAFree) {
  unsigned long long id = 0;
  ASSERT_EQ(driver_.api().stream_get_id(reader_, &id), CUDA_SUCCESS);
  const Stream reader = StreamAccess::wrap(driver_.api(), {reader_, id}, 0, std::make_shared<int>());
  const auto turn = [&] {
    void* block = allocator_.allocate(kMega);
    allocator_.record_stream(block, reader);
    allocator_.deallocate(block);
  };
  std::thread([&] {
    for (int i = 0; i < 3; ++i) turn();
    const auto before = driver_.calls_by_name();
    for (int i = 0; i < 10; ++i) turn();
    std::map<std::string, std::uint64_t> calls = driver_.calls_by_name();
    for (const auto& [entry, count] : before) calls[entry] -= count;
    std::erase_if(calls, [](const auto& each) { return each.second == 0; });
    EXPECT_EQ(calls, (std::map<std::string, std::uint64_t>{
                         {"cuStreamIsCapturing", 10}, {"cuEventRecord", 10}, {"cuEventQuery", 10}}));
  }).join();
}

TEST_F(PendingFreesTest, ADriverThatWantsAContextForItsEventsGetsOne) {
  struct Wanting {
    SimulatedDriver& driver;
    [[nodiscard]] bool has_context() const {
      CUcontext context = nullptr;
      return driver.api().ctx_get_current(&context) == CUDA_SUCCESS && context != nullptr;
    }
  } wanting{driver_};
  DriverApi api = driver_.api();
  api.event_record = {&wanting, [](void* self, CUevent event, CUstream stream) {
                        const auto& now = *static_cast<const Wanting*>(self);
                        return now.has_context() ? now.driver.api().event_record(event, stream)
                                                 : CUDA_ERROR_INVALID_CONTEXT;
                      }};
  api.event_query = {&wanting, [](void* self, CUevent event) {
                       const auto& now = *static_cast<const Wanting*>(self);
                       return now.has_context() ? now.driver.api().event_query(event) : CUDA_ERROR_INVALID_CONTEXT;
                     }};
  CachingAllocator allocator({.driver = &api, .options = AllocatorOptions::parse("oom_dump:off,policy:classic")});
  std::thread([&] {
    void* block = allocator.allocate(kMega, owner_);
    for (int i = 0; i < 3; ++i) {
      allocator.deallocate(block, reader_);
      EXPECT_EQ(driver_.calls("cuEventRecord"), static_cast<std::uint64_t>(i + 1)) << "with the free";
      EXPECT_EQ(allocator.allocate(kMega, owner_), block);
    }
    CUcontext current = nullptr;
    EXPECT_EQ(driver_.api().ctx_get_current(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, nullptr) << "the caller's is as it was";
  }).join();
}

TEST_F(PendingFreesTest, RecordingTheOwnStreamDelaysNothing) {
  void* first = allocator_.allocate(kMega, owner_);
  driver_.occupy(owner_, 10ms);
  allocator_.record_stream(first, owner_);
  allocator_.deallocate(first, owner_);
  EXPECT_EQ(allocator_.allocate(kMega, owner_), first);
  EXPECT_EQ(driver_.calls("cuEventRecord"), 0U);
}

TEST_F(PendingFreesTest, FreedWithALastUseWaitsForThatStream) {
  void* first = allocator_.allocate(kMega, owner_);
  driver_.occupy(reader_, 10ms);
  allocator_.deallocate(first, reader_);
  EXPECT_NE(allocator_.allocate(kMega, owner_), first);
}

TEST_F(PendingFreesTest, EachStreamIsRecordedOnceHoweverOftenItWasNamed) {
  void* first = allocator_.allocate(kMega, owner_);
  for (int i = 0; i < 5; ++i) allocator_.record_stream(first, reader_);
  allocator_.deallocate(first, reader_);
  EXPECT_EQ(driver_.calls("cuEventRecord"), 1U);
}

// All orders in which six streams may finish: the block is free after the last, never before.
TEST_F(PendingFreesTest, ABlockIsFreeAfterTheLastOfSixStreamsInEveryOrder) {
  std::vector<StreamHandle> readers;
  for (int i = 0; i < 6; ++i) readers.push_back(driver_.create_stream());
  std::vector<std::size_t> order = {0, 1, 2, 3, 4, 5};
  do {
    void* block = allocator_.allocate(kMega, owner_);
    for (StreamHandle reader : readers) {
      driver_.occupy(reader, 1ms);
      allocator_.record_stream(block, reader);
    }
    allocator_.deallocate(block);
    for (std::size_t i : order) {
      void* probe = allocator_.allocate(kMega, owner_);
      ASSERT_NE(probe, block);
      allocator_.deallocate(probe);
      driver_.run_until_idle(readers[i]);
    }
    void* again = allocator_.allocate(kMega, owner_);
    ASSERT_EQ(again, block);
    allocator_.deallocate(again);
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_NO_THROW(allocator_.check());
}

// pytorch#71616: one slow stream hid the finished frees of all others.
TEST_F(PendingFreesTest, ASlowStreamDoesNotHideFinishedFreesOfAnother) {
  const StreamHandle slow = driver_.create_stream();
  void* held = allocator_.allocate(kMega, owner_);
  void* done = allocator_.allocate(kMega, owner_);
  driver_.occupy(slow, 100ms);
  allocator_.deallocate(held, slow);
  allocator_.deallocate(done, reader_);
  EXPECT_EQ(allocator_.allocate(kMega, owner_), done);
  EXPECT_EQ(allocator_.memory_stats().active.all.current, 2);
}

TEST_F(PendingFreesTest, PendingMemoryIsActiveButNotAllocated) {
  void* first = allocator_.allocate(kMega, owner_);
  driver_.occupy(reader_, 1ms);
  allocator_.deallocate(first, reader_);
  const MemoryStats stats = allocator_.memory_stats();
  EXPECT_EQ(stats.allocated_bytes.all.current, 0);
  EXPECT_EQ(stats.active_bytes.all.current, static_cast<std::int64_t>(kMega));
  EXPECT_EQ(stats.requested_bytes.all.current, static_cast<std::int64_t>(kMega));
  EXPECT_EQ(allocator_.snapshot().segments.at(0).blocks.at(0).state, BlockState::active_pending_free);
}

TEST_F(PendingFreesTest, APendingBlockIsNotMergedWithItsFreeNeighbours) {
  void* first = allocator_.allocate(kMega / 2, owner_);
  void* second = allocator_.allocate(kMega / 2, owner_);
  driver_.occupy(reader_, 1ms);
  allocator_.deallocate(first, reader_);
  allocator_.deallocate(second);
  EXPECT_NO_THROW(allocator_.check());
  EXPECT_EQ(allocator_.allocate(kMega, owner_), second) << "the pending block must stay out of it";
}

TEST_F(PendingFreesTest, EmptyCacheWaitsForPendingFrees) {
  void* first = allocator_.allocate(30 * kMega, owner_);
  driver_.occupy(reader_, 1ms);
  allocator_.deallocate(first, reader_);
  allocator_.empty_cache();
  EXPECT_EQ(driver_.used_bytes(), 0U);
  EXPECT_GE(driver_.host_synchronizations(), 1U);
}

TEST_F(PendingFreesTest, AStreamOfAnotherDeviceGuardsTheFree) {
  const StreamHandle remote = driver_.create_stream(1);
  void* first = allocator_.allocate(kMega, owner_);
  driver_.occupy(remote, 1ms);
  allocator_.record_stream(first, remote);
  allocator_.deallocate(first);
  EXPECT_NE(allocator_.allocate(kMega, owner_), first);
  driver_.run_until_idle(remote, 1);
  EXPECT_EQ(allocator_.allocate(kMega, owner_), first);
}

// Without an event a free cannot be guarded, so the block must stay out of reach.
TEST_F(PendingFreesTest, ABlockWhoseEventIsRefusedIsNotReusedUntilOneIsRecorded) {
  void* first = allocator_.allocate(kMega, owner_);
  driver_.occupy(reader_, 1ms);
  allocator_.record_stream(first, reader_);
  driver_.fail_call("cuEventRecord", 1, CUDA_ERROR_LAUNCH_FAILED);
  driver_.fail_call("cuEventRecord", 2, CUDA_ERROR_LAUNCH_FAILED);
  allocator_.deallocate(first);
  EXPECT_THROW(static_cast<void>(allocator_.allocate(kMega, owner_)), DriverError) << "the failure is not hidden";
  EXPECT_NE(allocator_.allocate(kMega, owner_), first);
  driver_.run_until_idle(reader_);
  EXPECT_EQ(allocator_.allocate(kMega, owner_), first);
}

// A raw handle keeps nothing alive: the new stream of the same handle is ordered after nothing.
TEST_F(PendingFreesTest, WorkOfADestroyedStreamIsDoneBeforeReuse) {
  void* first = allocator_.allocate(kMega, owner_);
  const StreamHandle gone = driver_.create_stream();
  bool done = false;
  driver_.launch(gone, {}, {}, 1ms, [&] { done = true; });
  allocator_.record_stream(first, gone);
  driver_.destroy_stream(gone);
  static_cast<void>(driver_.create_stream());
  allocator_.deallocate(first);
  EXPECT_EQ(allocator_.allocate(kMega, owner_), first);
  EXPECT_TRUE(done);
}

// What a stream keeps alive may free memory itself when it goes.
TEST_F(PendingFreesTest, AnOwnerThatFreesMemoryWhenItEndsDoesNotDeadlock) {
  void* first = allocator_.allocate(kMega, owner_);
  void* second = allocator_.allocate(kMega, owner_);
  {
    std::shared_ptr<void> owner(second, [this](void* pointer) { allocator_.deallocate(pointer); });
    allocator_.record_stream(first, StreamAccess::wrap(driver_.api(), {reader_, 77}, 0, owner));
  }
  EXPECT_EQ(allocator_.memory_stats().allocation.all.current, 2);
  allocator_.deallocate(first);
  EXPECT_EQ(allocator_.memory_stats().allocation.all.current, 0);
}

TEST_F(PendingFreesTest, AStreamOfAnotherDriverIsRefused) {
  SimulatedDriver other({.backing = Backing::none});
  const Stream foreign = StreamAccess::wrap(other.api(), {other.create_stream(), 2}, 0);
  EXPECT_THROW(static_cast<void>(allocator_.allocate(kMega, foreign)), InvalidArgument);
  void* block = allocator_.allocate(kMega, owner_);
  EXPECT_THROW(allocator_.record_stream(block, foreign), InvalidArgument);
}

// The stream may be of any device, so all are waited for; and if that fails nothing is freed.
TEST_F(PendingFreesTest, AFreeWhoseLastStreamIsUnknownWaitsForEveryDevice) {
  const StreamHandle remote = driver_.create_stream(1);
  void* first = allocator_.allocate(kMega, owner_);
  bool done = false;
  driver_.launch(remote, {}, {}, 1ms, [&] { done = true; });
  driver_.fail_call("cuStreamGetId", 1, CUDA_ERROR_INVALID_HANDLE);
  allocator_.deallocate(first, remote);
  EXPECT_TRUE(done);
  EXPECT_EQ(allocator_.memory_stats().allocation.all.current, 0);

  void* second = allocator_.allocate(kMega, owner_);
  driver_.fail_call("cuStreamGetId", 1, CUDA_ERROR_INVALID_HANDLE);
  driver_.fail_call("cuCtxSynchronize", 1, CUDA_ERROR_LAUNCH_FAILED);
  allocator_.deallocate(second, remote);
  EXPECT_EQ(allocator_.memory_stats().allocation.all.current, 1) << "unguarded, it must stay allocated";
  allocator_.deallocate(second);
}

TEST_F(PendingFreesTest, EventsAreReusedAndNeverMadeAgain) {
  for (int i = 0; i < 100; ++i) allocator_.deallocate(allocator_.allocate(kMega, owner_), reader_);
  EXPECT_LE(driver_.calls("cuEventCreate"), 2U);
  EXPECT_EQ(driver_.calls("cuEventDestroy"), 0U);
}

}  // namespace
}  // namespace cistern
