// Policy `async`: the driver's stream-ordered pools, with cistern's statistics, limits and guards.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "runtime/driver_api.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

class StreamOrderedTest : public ::testing::Test {
 protected:
  ~StreamOrderedTest() override { allocator_.check(); }

  // A capture of another stream, for a pool: what is done meanwhile must leave it whole.
  template <class Meanwhile>
  void capture(Meanwhile&& meanwhile) {
    const PoolId graph{5, 0};
    allocator_.begin_allocate_to_pool(0, graph, PoolFilter::this_thread());
    ASSERT_EQ(driver_.api().stream_begin_capture(reader_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    meanwhile();
    CUgraph captured = nullptr;
    EXPECT_EQ(driver_.api().stream_end_capture(reader_, &captured), CUDA_SUCCESS);
    EXPECT_EQ(driver_.api().graph_destroy(captured), CUDA_SUCCESS);
    allocator_.end_allocate_to_pool(0, graph);
    allocator_.release_pool(0, graph);
  }

  SimulatedDriver driver_{{.devices = 2, .capacity_bytes = 64 * kMega, .backing = Backing::none}};
  CachingAllocator allocator_{
      {.driver = &driver_.api(), .options = AllocatorOptions::parse("policy:async,oom_dump:off")}};
  const StreamHandle owner_ = driver_.create_stream();
  const StreamHandle reader_ = driver_.create_stream();
};

TEST_F(StreamOrderedTest, BlocksAreTheDriversAllocations) {
  void* const block = allocator_.allocate(3 * kMega, owner_);
  EXPECT_EQ(driver_.calls("cuMemAllocFromPoolAsync"), 1U);
  EXPECT_EQ(driver_.calls("cuMemAlloc"), 0U);
  const MemoryStats held = allocator_.memory_stats();
  EXPECT_EQ(held.allocated_bytes.all.current, std::int64_t{3 * kMega});
  EXPECT_EQ(held.reserved_bytes.all.current, std::int64_t{3 * kMega});
  EXPECT_EQ(held.segment.all.current, 1);
  EXPECT_EQ(allocator_.snapshot().segments.size(), 1U);
  allocator_.deallocate(block);
  EXPECT_EQ(driver_.calls("cuMemFreeAsync"), 1U);
  EXPECT_EQ(allocator_.memory_stats().reserved_bytes.all.current, 0);
  EXPECT_EQ(driver_.host_synchronizations(), 0U);
}

TEST_F(StreamOrderedTest, TheDriversPoolKeepsWhatIsFreeUntilItIsTrimmed) {
  allocator_.deallocate(allocator_.allocate(8 * kMega, owner_));
  driver_.run_until_idle();
  EXPECT_GE(driver_.used_bytes(), 8 * kMega);
  const std::size_t kept = driver_.used_bytes();
  void* const block = allocator_.allocate(8 * kMega, owner_);
  EXPECT_EQ(driver_.used_bytes(), kept) << "from what the pool kept";
  allocator_.deallocate(block);
  allocator_.empty_cache();
  EXPECT_EQ(driver_.used_bytes(), 0U);
}

TEST_F(StreamOrderedTest, ABlockWaitsForTheRecordedStream) {
  void* const block = allocator_.allocate(kMega, owner_);
  driver_.occupy(reader_, 10ms);
  allocator_.record_stream(block, reader_);
  allocator_.deallocate(block);
  EXPECT_EQ(driver_.calls("cuMemFreeAsync"), 0U);
  EXPECT_EQ(allocator_.memory_stats().active.all.current, 1);
  EXPECT_NE(allocator_.allocate(kMega, owner_), block);
  driver_.run_until_idle(reader_);
  static_cast<void>(allocator_.allocate(kMega, owner_));
  EXPECT_EQ(driver_.calls("cuMemFreeAsync"), 1U);
  EXPECT_EQ(allocator_.memory_stats().active.all.current, 2);
  EXPECT_EQ(driver_.host_synchronizations(), 0U);
}

TEST_F(StreamOrderedTest, PendingFreesAndThePoolGoBackBeforeOutOfMemory) {
  void* const block = allocator_.allocate(40 * kMega, owner_);
  driver_.occupy(reader_, 10ms);
  allocator_.record_stream(block, reader_);
  allocator_.deallocate(block);
  EXPECT_NE(allocator_.allocate(50 * kMega, owner_), nullptr);
  EXPECT_EQ(allocator_.memory_stats().num_alloc_retries, 1);
  try {
    static_cast<void>(allocator_.allocate(40 * kMega, owner_));
    FAIL() << "expected no memory";
  } catch (const OutOfMemoryError& error) {
    const OutOfMemoryReport& report = error.report();
    EXPECT_EQ(report.requested_bytes, 40 * kMega);
    EXPECT_EQ(report.reserved_bytes, 50 * kMega);
    EXPECT_EQ(report.device_total_bytes, report.device_free_bytes + report.outside_bytes + report.reserved_bytes);
    EXPECT_EQ(report.outside_bytes, 0U) << "the driver's pool keeps nothing any more";
  }
  EXPECT_EQ(allocator_.memory_stats().num_ooms, 1);
}

TEST_F(StreamOrderedTest, AMemoryFractionBoundsWhatThePoolHolds) {
  allocator_.set_memory_fraction(0.5);
  allocator_.deallocate(allocator_.allocate(20 * kMega, owner_));
  driver_.run_until_idle();
  void* const reused = allocator_.allocate(20 * kMega, owner_);
  EXPECT_EQ(allocator_.memory_stats().num_alloc_retries, 0) << "from what the pool kept";
  allocator_.deallocate(reused);
  driver_.run_until_idle();
  static_cast<void>(allocator_.allocate(24 * kMega, owner_));
  EXPECT_LE(driver_.used_bytes(), 32 * kMega);
  EXPECT_THROW(static_cast<void>(allocator_.allocate(12 * kMega, owner_)), OutOfMemoryError);
}

TEST_F(StreamOrderedTest, TrimGivesBackWhatThePoolKeeps) {
  allocator_.deallocate(allocator_.allocate(8 * kMega, owner_));
  driver_.run_until_idle();
  const std::size_t used = driver_.used_bytes();
  EXPECT_EQ(allocator_.trim(0), used);
  EXPECT_EQ(driver_.used_bytes(), 0U);
}

TEST_F(StreamOrderedTest, ARequestOnAStreamThatCapturesIsRefusedAndHarmsNothing) {
  const DriverApi& api = driver_.api();
  void* const block = allocator_.allocate(kMega, owner_);
  ASSERT_EQ(api.stream_begin_capture(owner_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_THROW(static_cast<void>(allocator_.allocate(kMega, owner_)), DriverError);
  allocator_.deallocate(block);  // cannot go back in order on that stream now
  EXPECT_EQ(driver_.calls("cuMemFreeAsync"), 0U);
  CUgraph graph = nullptr;
  ASSERT_EQ(api.stream_end_capture(owner_, &graph), CUDA_SUCCESS);
  std::size_t nodes = 0;
  EXPECT_EQ(api.graph_get_nodes(graph, nullptr, &nodes), CUDA_SUCCESS);
  EXPECT_EQ(nodes, 0U);
  EXPECT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
  allocator_.empty_cache();
  EXPECT_EQ(allocator_.memory_stats().reserved_bytes.all.current, 0);
  EXPECT_EQ(driver_.used_bytes(), 0U);
}

TEST_F(StreamOrderedTest, PrivatePoolsKeepMemoryOfTheDevice) {
  const PoolId graph{5, 0};
  allocator_.begin_allocate_to_pool(0, graph, PoolFilter::this_thread());
  void* const block = allocator_.allocate(kMega, owner_);
  EXPECT_EQ(driver_.calls("cuMemAlloc"), 1U);
  allocator_.deallocate(block);
  EXPECT_EQ(allocator_.allocate(kMega, owner_), block);
  allocator_.deallocate(block);
  allocator_.end_allocate_to_pool(0, graph);
  allocator_.release_pool(0, graph);
  allocator_.empty_cache();
  EXPECT_EQ(allocator_.memory_stats().reserved_bytes.all.current, 0);
}

// cuMemFree of a pool's memory waits for no work on it: the wait is ours.
TEST_F(StreamOrderedTest, AFreeAfterItsStreamsEndWaitsForTheDevice) {
  const StreamHandle gone = driver_.create_stream();
  void* const block = allocator_.allocate(kMega, gone);
  bool is_done = false;
  driver_.launch(gone, {}, {{block, kMega}}, 10ms, [&] { is_done = true; });
  driver_.destroy_stream(gone);
  allocator_.deallocate(block);
  EXPECT_TRUE(is_done);
  EXPECT_EQ(driver_.calls("cuMemFreeAsync"), 0U);
  EXPECT_EQ(driver_.calls("cuMemFree"), 1U);
  EXPECT_EQ(allocator_.memory_stats().reserved_bytes.all.current, 0);
}

TEST_F(StreamOrderedTest, AFreeOfAnotherThreadsDefaultStreamsBlockWaitsForIt) {
  void* block = nullptr;
  bool is_done = false;
  std::promise<void> queued, freed;
  std::thread other([&] {
    block = allocator_.allocate(kMega, CU_STREAM_PER_THREAD);
    driver_.launch(CU_STREAM_PER_THREAD, {}, {{block, kMega}}, 10ms, [&] { is_done = true; });
    queued.set_value();
    freed.get_future().wait();
  });
  queued.get_future().wait();
  allocator_.deallocate(block);
  EXPECT_TRUE(is_done);
  EXPECT_EQ(allocator_.memory_stats().reserved_bytes.all.current, 0);
  freed.set_value();
  other.join();
}

TEST_F(StreamOrderedTest, SuchAFreeStaysCountedDuringACapture) {
  const StreamHandle gone = driver_.create_stream();
  void* const block = allocator_.allocate(kMega, gone);
  driver_.occupy(gone, 10ms);
  driver_.destroy_stream(gone);
  capture([&] {
    allocator_.deallocate(block);
    allocator_.empty_cache();
    std::thread([&] { EXPECT_NO_THROW(allocator_.empty_cache()) << "it is nobody's error"; }).join();
    EXPECT_EQ(driver_.calls("cuMemFree"), 0U);
    EXPECT_EQ(allocator_.memory_stats().reserved_bytes.all.current, std::int64_t{kMega});
    EXPECT_EQ(allocator_.memory_stats().allocated_bytes.all.current, 0);
  });
  allocator_.empty_cache();
  EXPECT_EQ(driver_.calls("cuMemFree"), 1U);
  EXPECT_EQ(allocator_.memory_stats().reserved_bytes.all.current, 0);
}

TEST_F(StreamOrderedTest, NoFlushBreaksACapture) {
  allocator_.deallocate(allocator_.allocate(8 * kMega, owner_));
  capture([&] {
    allocator_.trim(0);
    allocator_.empty_cache();
    std::thread([&] {
      allocator_.empty_cache();
      EXPECT_THROW(static_cast<void>(allocator_.allocate(100 * kMega, owner_)), OutOfMemoryError);
    }).join();
  });
  EXPECT_EQ(driver_.host_synchronizations(), 0U);
  allocator_.empty_cache();
  EXPECT_EQ(driver_.used_bytes(), 0U);
}

TEST_F(StreamOrderedTest, WhatTheDriverDoesNotTakeBackOverTheLimitIsHandedOut) {
  allocator_.set_memory_fraction(0.5);
  allocator_.deallocate(allocator_.allocate(20 * kMega, owner_));
  driver_.run_until_idle();
  driver_.fail_call("cuMemFreeAsync", 1, CUDA_ERROR_INVALID_VALUE);
  void* const block = allocator_.allocate(24 * kMega, owner_);
  EXPECT_EQ(allocator_.memory_stats().reserved_bytes.all.current, std::int64_t{24 * kMega});
  EXPECT_EQ(driver_.calls("cuMemAllocFromPoolAsync"), 2U);
  allocator_.deallocate(block);
  allocator_.empty_cache();
  EXPECT_EQ(driver_.used_bytes(), 0U);
}

TEST_F(StreamOrderedTest, ARefusedFreeStaysCountedUntilTheNextFlush) {
  void* const block = allocator_.allocate(kMega, owner_);
  driver_.fail_call("cuMemFreeAsync", 1, CUDA_ERROR_INVALID_VALUE);
  allocator_.deallocate(block);
  EXPECT_EQ(allocator_.memory_stats().reserved_bytes.all.current, std::int64_t{kMega});
  EXPECT_EQ(allocator_.memory_stats().allocated_bytes.all.current, 0);
  allocator_.empty_cache();
  EXPECT_EQ(allocator_.memory_stats().reserved_bytes.all.current, 0);
}

TEST(StreamOrderedSupportTest, ADeviceWithoutPoolsRefusesThePolicy) {
  SimulatedDriver driver({.capacity_bytes = 64 * kMega});
  DriverApi api = driver.api();
  api.device_get_attribute = {&driver, [](void* self, int* value, CUdevice_attribute attribute, CUdevice device) {
                                const DriverApi& real = static_cast<SimulatedDriver*>(self)->api();
                                if (attribute != CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)
                                  return real.device_get_attribute(value, attribute, device);
                                *value = 0;
                                return CUDA_SUCCESS;
                              }};
  CachingAllocator allocator({.driver = &api, .options = AllocatorOptions::parse("policy:async")});
  EXPECT_THROW(static_cast<void>(allocator.allocate(kMega)), NotSupported);
  CachingAllocator classic({.driver = &api, .options = AllocatorOptions::parse("policy:classic")});
  EXPECT_NE(classic.allocate(kMega), nullptr);
}

TEST(StreamOrderedSupportTest, ThePolicyMayBeChosenBeforeTheFirstUse) {
  SimulatedDriver driver({.capacity_bytes = 64 * kMega});
  CachingAllocator allocator({.driver = &driver.api()});
  static_cast<void>(allocator.memory_fraction());  // makes the heap
  allocator.set_options("policy:async");
  static_cast<void>(allocator.allocate(kMega));
  EXPECT_EQ(driver.calls("cuMemAllocFromPoolAsync"), 1U);
  EXPECT_THROW(allocator.set_options("policy:classic"), NotSupported);
}

// --- Managed memory ------------------------------------------------------------------------------

TEST(ManagedHeapTest, IsCachedAndGuardedAsPageLockedMemoryIs) {
  SimulatedDriver driver({.capacity_bytes = 16 * kMega});
  CachingAllocator allocator({.driver = &driver.api()});
  const StreamHandle stream = driver.create_stream();
  auto* const block = static_cast<unsigned char*>(allocator.allocate_managed(32 * kMega));  // more than the device has
  block[0] = block[32 * kMega - 1] = 7;
  EXPECT_EQ(driver.calls("cuMemAllocManaged"), 1U);
  EXPECT_EQ(driver.used_bytes(), 0U);
  unsigned managed = 0;
  EXPECT_EQ(driver.api().pointer_get_attribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                               reinterpret_cast<CUdeviceptr>(block)),
            CUDA_SUCCESS);
  EXPECT_EQ(managed & 1U, 1U);
  driver.occupy(stream, 10ms);
  EXPECT_TRUE(allocator.record_managed_stream(block, stream));
  allocator.deallocate_managed(block);
  EXPECT_NE(allocator.allocate_managed(32 * kMega), block);
  driver.run_until_idle();
  EXPECT_EQ(allocator.allocate_managed(32 * kMega), block);
  EXPECT_EQ(allocator.managed_memory_stats().num_host_alloc, 2);
  EXPECT_EQ(allocator.host_memory_stats().num_host_alloc, 0);
  allocator.deallocate_managed(block);
  allocator.empty_managed_cache();
  EXPECT_EQ(driver.calls("cuMemFree"), 1U);
  EXPECT_EQ(allocator.managed_memory_stats().active_requests.current, 1);
  allocator.check();
}

TEST(ManagedHeapTest, ADeviceWithoutItIsNotSupported) {
  SimulatedDriver driver({.capacity_bytes = 16 * kMega});
  DriverApi api = driver.api();
  api.mem_alloc_managed = {};
  CachingAllocator allocator({.driver = &api});
  EXPECT_THROW(static_cast<void>(allocator.allocate_managed(100)), NotSupported);
  EXPECT_EQ(allocator.managed_memory_stats().flat(), HostMemoryStats{}.flat());
}

TEST(ManagedHeapTest, OutOfMemoryNamesIt) {
  SimulatedDriver driver({.capacity_bytes = 16 * kMega});
  CachingAllocator allocator({.driver = &driver.api()});
  driver.fail_call("cuMemAllocManaged", 1, CUDA_ERROR_OUT_OF_MEMORY);
  driver.fail_call("cuMemAllocManaged", 2, CUDA_ERROR_OUT_OF_MEMORY);
  try {
    static_cast<void>(allocator.allocate_managed(kMega));
    FAIL() << "expected no memory";
  } catch (const OutOfMemoryError& error) {
    EXPECT_NE(std::string(error.what()).find("out of memory: managed memory"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace cistern
