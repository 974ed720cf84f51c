// Page-locked host memory beside captures, and what graphs keep of it.

#include <cuda.h>
#include <gtest/gtest.h>

#include <chrono>

#include "runtime/driver_api.h"
#include "tests/allocator/host_heap_fixture.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

// What may not be asked while any thread captures in global mode is asked all the same: in relaxed mode.
TEST_F(HostHeapTest, ACaptureOfAnotherStreamStaysWhole) {
  void* const block = allocator_.allocate_host(kMega);
  driver_.occupy(copies_, 10ms);
  allocator_.record_host_stream(block, copies_);
  ASSERT_EQ(driver_.api().stream_begin_capture(others_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  allocator_.deallocate_host(block);
  void* const other = allocator_.allocate_host(kMega);
  EXPECT_NE(other, block);
  allocator_.deallocate_host(other);
  allocator_.deallocate_host(allocator_.allocate_host(8 * kMega));  // from the driver
  allocator_.empty_host_cache();
  CUgraph graph = nullptr;
  EXPECT_EQ(driver_.api().stream_end_capture(others_, &graph), CUDA_SUCCESS);
  EXPECT_EQ(driver_.api().graph_destroy(graph), CUDA_SUCCESS);
}

// Recorded before the capture, freed in it: the event is recorded behind the capture.
TEST_F(HostHeapTest, AFreeWhileItsStreamCapturesIsGuardedAfterwards) {
  void* const block = allocator_.allocate_host(kMega);
  driver_.occupy(copies_, 10ms);
  allocator_.record_host_stream(block, copies_);
  ASSERT_EQ(driver_.api().stream_begin_capture(copies_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  allocator_.deallocate_host(block);
  EXPECT_NE(allocator_.allocate_host(kMega), block);
  CUgraph graph = nullptr;
  ASSERT_EQ(driver_.api().stream_end_capture(copies_, &graph), CUDA_SUCCESS);
  EXPECT_EQ(driver_.api().graph_destroy(graph), CUDA_SUCCESS);
  EXPECT_NE(allocator_.allocate_host(kMega), block);
  driver_.run_until_idle();
  EXPECT_EQ(allocator_.allocate_host(kMega), block);
}

TEST_F(HostHeapTest, ABlockThatAGraphUsesIsKeptUntilTheGraphsEnd) {
  void* const block = allocator_.allocate_host(kMega);
  const DriverApi& api = driver_.api();
  ASSERT_EQ(api.stream_begin_capture(copies_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_TRUE(allocator_.record_host_stream(block, copies_));
  CUgraph graph = nullptr;
  ASSERT_EQ(api.stream_end_capture(copies_, &graph), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(api.graph_instantiate(&exec, graph, 0), CUDA_SUCCESS);
  allocator_.deallocate_host(block);
  EXPECT_NE(allocator_.allocate_host(kMega), block);
  ASSERT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
  EXPECT_NE(allocator_.allocate_host(kMega), block);
  EXPECT_EQ(allocator_.host_memory_stats().active_requests.current, 3);
  ASSERT_EQ(api.graph_exec_destroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(allocator_.allocate_host(kMega), block);
}

// Although the driver says whose handle it is only in the stream's context.
TEST_F(HostHeapTest, ACaptureIsSeenByADriverThatWantsAContext) {
  void* const block = allocator_.allocate_host(kMega);
  const DriverApi& api = driver_.api();
  ASSERT_EQ(api.stream_begin_capture(copies_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  driver_.fail_call("cuStreamGetId", 2, CUDA_ERROR_INVALID_CONTEXT);  // behind the one of the call itself
  EXPECT_TRUE(allocator_.record_host_stream(block, copies_));
  CUgraph graph = nullptr;
  ASSERT_EQ(api.stream_end_capture(copies_, &graph), CUDA_SUCCESS);
  allocator_.deallocate_host(block);
  EXPECT_NE(allocator_.allocate_host(kMega), block) << "the graph has it";
  ASSERT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
}

TEST_F(HostHeapTest, AGraphThatEndsBeforeTheFreeKeepsNothing) {
  void* const block = allocator_.allocate_host(kMega);
  const DriverApi& api = driver_.api();
  ASSERT_EQ(api.stream_begin_capture(copies_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_TRUE(allocator_.record_host_stream(block, copies_));
  CUgraph graph = nullptr;
  ASSERT_EQ(api.stream_end_capture(copies_, &graph), CUDA_SUCCESS);
  ASSERT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
  allocator_.deallocate_host(block);
  EXPECT_EQ(allocator_.allocate_host(kMega), block);
}

TEST(HostHeapEndTest, AGraphMayOutliveTheHeap) {
  SimulatedDriver driver({.capacity_bytes = 64 * kMega});
  const StreamHandle stream = driver.create_stream();
  CUgraph graph = nullptr;
  {
    CachingAllocator allocator({.driver = &driver.api()});
    void* const block = allocator.allocate_host(kMega);
    ASSERT_EQ(driver.api().stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    EXPECT_TRUE(allocator.record_host_stream(block, stream));
    ASSERT_EQ(driver.api().stream_end_capture(stream, &graph), CUDA_SUCCESS);
  }
  EXPECT_EQ(driver.calls("cuMemFreeHost"), 1U);
  EXPECT_EQ(driver.api().graph_destroy(graph), CUDA_SUCCESS);
}

// The wait for the device would break it: the block is pending until the capture is over.
TEST_F(HostHeapTest, ADestroyedStreamsWorkIsNotWaitedForDuringACapture) {
  const StreamHandle gone = driver_.create_stream();
  void* const block = allocator_.allocate_host(kMega);
  driver_.occupy(gone, 10ms);
  allocator_.record_host_stream(block, gone);
  driver_.destroy_stream(gone);
  const PoolId pool{5, 0};
  allocator_.begin_allocate_to_pool(1, pool, PoolFilter::this_thread());  // of any device
  ASSERT_EQ(driver_.api().stream_begin_capture(others_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  allocator_.deallocate_host(block);
  EXPECT_NE(allocator_.allocate_host(kMega), block);
  allocator_.empty_host_cache();
  EXPECT_EQ(driver_.host_synchronizations(), 0U);
  CUgraph graph = nullptr;
  EXPECT_EQ(driver_.api().stream_end_capture(others_, &graph), CUDA_SUCCESS);
  EXPECT_EQ(driver_.api().graph_destroy(graph), CUDA_SUCCESS);
  allocator_.end_allocate_to_pool(1, pool);
  allocator_.release_pool(1, pool);
  EXPECT_EQ(allocator_.allocate_host(kMega), block);
  EXPECT_EQ(driver_.host_synchronizations(), 1U);
}

}  // namespace
}  // namespace cistern
