// Page-locked host memory: sizes, reuse, what streams and graphs keep, what comes from the driver and goes back.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "allocator/host_sizes.h"
#include "allocator/numa_preference.h"
#include "runtime/driver_api.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

TEST(HostSizesTest, WasteIsBelowAnEighthAndBelowAPageAboveOneMebibyte) {
  for (std::size_t bytes = 1; bytes <= 3 * kMega; bytes += bytes < 5000 ? 1 : 331) {
    const std::size_t rounded = host_sizes::round(bytes);
    ASSERT_GE(rounded, bytes);
    ASSERT_EQ(rounded % host_sizes::kAlignment, 0U);
    ASSERT_EQ(host_sizes::round(rounded), rounded) << "a class serves itself";
    const std::size_t waste = rounded - bytes;
    const bool is_small = waste * 8 < bytes || (bytes < 512 && waste < 64);
    ASSERT_TRUE(bytes > kMega ? waste < 4096 : is_small) << bytes;
  }
}

class HostHeapTest : public ::testing::Test {
 protected:
  ~HostHeapTest() override { allocator_.check(); }
  [[nodiscard]] std::uint64_t driver_calls(std::string_view entry) const { return driver_.calls(entry); }

  SimulatedDriver driver_{{.devices = 2, .capacity_bytes = 512 * kMega}};
  CachingAllocator allocator_{{.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:off")}};
  const StreamHandle copies_ = driver_.create_stream();
  const StreamHandle others_ = driver_.create_stream(1);
};

TEST_F(HostHeapTest, WhatIsFreedServesAgainWithoutADriverCall) {
  void* const small = allocator_.allocate_host(1000);
  void* const large = allocator_.allocate_host(5 * kMega);
  EXPECT_EQ(driver_calls("cuMemHostAlloc"), 2U);
  allocator_.deallocate_host(small);
  allocator_.deallocate_host(large);
  const std::uint64_t calls = driver_.calls();
  EXPECT_EQ(allocator_.allocate_host(990), small);
  EXPECT_EQ(allocator_.allocate_host(5 * kMega), large);
  allocator_.deallocate_host(small);
  allocator_.deallocate_host(large);
  EXPECT_EQ(driver_.calls(), calls);
}

TEST_F(HostHeapTest, BlocksDoNotOverlapAndAreAligned) {
  std::vector<std::pair<std::uintptr_t, std::size_t>> blocks;
  for (const std::size_t bytes : {1, 63, 64, 65, 4095, 4097, 70'000, 1'048'577, 3'000'000}) {
    for (int i = 0; i < 3; ++i) {
      void* const pointer = allocator_.allocate_host(bytes);
      std::fill_n(static_cast<char*>(pointer), bytes, 'x');
      blocks.emplace_back(reinterpret_cast<std::uintptr_t>(pointer), bytes);
    }
  }
  std::sort(blocks.begin(), blocks.end());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(blocks[i].first % 64, 0U);
    EXPECT_EQ(blocks[i].second > kMega ? blocks[i].first % 4096 : 0, 0U);
    EXPECT_TRUE(i == 0 || blocks[i].first >= blocks[i - 1].first + blocks[i - 1].second);
  }
  for (const auto& [address, bytes] : blocks) allocator_.deallocate_host(reinterpret_cast<void*>(address));
  EXPECT_EQ(allocator_.host_memory_stats().active_bytes.current, 0);
}

TEST_F(HostHeapTest, LargeAlignmentsGetWholePages) {
  void* const first = allocator_.allocate_host(10);
  for (const std::size_t alignment : {128, 1024, 4096})
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(allocator_.allocate_host_aligned(100, alignment)) % alignment, 0U);
  EXPECT_THROW(static_cast<void>(allocator_.allocate_host_aligned(100, 8192)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(allocator_.allocate_host_aligned(100, 24)), InvalidArgument);
  allocator_.deallocate_host(first);
}

TEST_F(HostHeapTest, ALargerCachedPieceServesWithoutWaste) {
  void* const whole = allocator_.allocate_host(10 * kMega);
  allocator_.deallocate_host(whole);
  void* const part = allocator_.allocate_host(4 * kMega);
  EXPECT_EQ(part, whole);
  EXPECT_EQ(allocator_.allocate_host(6 * kMega), static_cast<char*>(whole) + 4 * kMega);
  EXPECT_EQ(driver_calls("cuMemHostAlloc"), 1U);
}

TEST_F(HostHeapTest, ABlockWaitsForEveryRecordedStream) {
  void* const block = allocator_.allocate_host(kMega);
  driver_.occupy(copies_, 10ms);
  driver_.occupy(others_, 20ms);
  EXPECT_TRUE(allocator_.record_host_stream(block, copies_));
  EXPECT_TRUE(allocator_.record_host_stream(block, copies_));
  EXPECT_TRUE(allocator_.record_host_stream(block, others_, 1));
  allocator_.deallocate_host(block);
  EXPECT_EQ(allocator_.host_memory_stats().active_requests.current, 1);
  EXPECT_NE(allocator_.allocate_host(kMega), block);
  driver_.run_until_idle(copies_);
  EXPECT_NE(allocator_.allocate_host(kMega), block);
  driver_.run_until_idle(others_, 1);
  EXPECT_EQ(allocator_.allocate_host(kMega), block);
  EXPECT_EQ(driver_.host_synchronizations(), 0U);
}

TEST_F(HostHeapTest, ASlowStreamDoesNotHideAnothersFinishedFrees) {
  void* const slow = allocator_.allocate_host(kMega);
  void* const quick = allocator_.allocate_host(kMega);
  driver_.occupy(copies_, 10ms);
  allocator_.record_host_stream(slow, copies_);
  allocator_.record_host_stream(quick, others_, 1);
  allocator_.deallocate_host(slow);
  allocator_.deallocate_host(quick);
  EXPECT_EQ(allocator_.allocate_host(kMega), quick);
}

TEST_F(HostHeapTest, WorkQueuedAfterTheFreeIsNotWaitedFor) {
  void* const block = allocator_.allocate_host(kMega);
  allocator_.record_host_stream(block, copies_);
  allocator_.deallocate_host(block);
  driver_.occupy(copies_, 10ms);
  EXPECT_EQ(allocator_.allocate_host(kMega), block);
}

TEST_F(HostHeapTest, EventsAreUsedAgain) {
  for (int i = 0; i < 20; ++i) {
    void* const block = allocator_.allocate_host(kMega);
    allocator_.record_host_stream(block, copies_);
    allocator_.deallocate_host(block);
    driver_.run_until_idle();
  }
  EXPECT_EQ(driver_calls("cuEventCreate"), 1U);
}

TEST_F(HostHeapTest, WhatIsNoBlockIsNotRecordedAndNotFreed) {
  void* const block = allocator_.allocate_host(1000);
  int foreign = 0;
  EXPECT_FALSE(allocator_.record_host_stream(&foreign, copies_));
  EXPECT_FALSE(allocator_.record_host_stream(static_cast<char*>(block) + 64, copies_));
  const HostMemoryStats before = allocator_.host_memory_stats();
  for (void* pointer : {static_cast<void*>(&foreign), static_cast<void*>(static_cast<char*>(block) + 64)}) {
    ::testing::internal::CaptureStderr();
    allocator_.deallocate_host(pointer);
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("not the address of a live block"), std::string::npos);
  }
  EXPECT_EQ(allocator_.host_memory_stats().flat(), before.flat());
  allocator_.deallocate_host(block);
  ::testing::internal::CaptureStderr();
  allocator_.deallocate_host(block);
  EXPECT_NE(::testing::internal::GetCapturedStderr(), "");
  allocator_.deallocate_host(nullptr);
  EXPECT_EQ(allocator_.allocate_host(0), nullptr);
  EXPECT_THROW(static_cast<void>(allocator_.allocate_host(100, 2)), InvalidArgument);
}

TEST_F(HostHeapTest, EmptyingWaitsForStreamsAndGivesAllBack) {
  void* const kept = allocator_.allocate_host(1000);
  void* const used = allocator_.allocate_host(2 * kMega);
  driver_.occupy(copies_, 10ms);
  allocator_.record_host_stream(used, copies_);
  allocator_.deallocate_host(used);
  allocator_.empty_host_cache();
  EXPECT_EQ(driver_calls("cuMemFreeHost"), 1U);
  const HostMemoryStats stats = allocator_.host_memory_stats();
  EXPECT_EQ(stats.allocated_bytes.current, std::int64_t{2 * kMega});
  EXPECT_EQ(stats.active_requests.current, 1);
  allocator_.deallocate_host(kept);
  allocator_.empty_host_cache();
  EXPECT_EQ(allocator_.host_memory_stats().allocated_bytes.current, 0);
}

TEST_F(HostHeapTest, StatisticsAreThoseOfPyTorch) {
  EXPECT_EQ(allocator_.host_memory_stats().flat().size(), 28U);
  void* const a = allocator_.allocate_host(1000);
  void* const b = allocator_.allocate_host(3 * kMega);
  allocator_.deallocate_host(a);
  auto flat = allocator_.host_memory_stats().flat();
  EXPECT_EQ(flat["allocations.current"], 2);
  EXPECT_EQ(flat["allocated_bytes.peak"], std::int64_t{5 * kMega});
  EXPECT_EQ(flat["active_requests.peak"], 2);
  EXPECT_EQ(flat["active_bytes.current"], std::int64_t{3 * kMega});
  EXPECT_EQ(flat["active_bytes.freed"], 1024);
  EXPECT_EQ(flat["num_host_alloc"], flat["allocations.allocated"]);
  EXPECT_EQ(flat["host_alloc_time.count"], 2);
  EXPECT_GE(flat["host_alloc_time.total"], flat["host_alloc_time.max"]);
  EXPECT_EQ(flat["host_alloc_time.avg"], flat["host_alloc_time.total"] / 2);
  EXPECT_EQ(flat["host_free_time.avg"], 0);
  allocator_.reset_peak_host_memory_stats();
  allocator_.reset_accumulated_host_memory_stats();
  flat = allocator_.host_memory_stats().flat();
  EXPECT_EQ(flat["active_requests.peak"], 1);
  EXPECT_EQ(flat["active_requests.allocated"], 0);
  EXPECT_EQ(flat["num_host_alloc"], 0);
  EXPECT_EQ(flat["host_alloc_time.count"], 0);
  allocator_.deallocate_host(b);
  allocator_.empty_host_cache();
  flat = allocator_.host_memory_stats().flat();
  EXPECT_EQ(flat["num_host_free"], 2);
  EXPECT_EQ(flat["host_free_time.count"], 2);
  const NestedStats nested = allocator_.host_memory_stats().nested();
  EXPECT_EQ(nested.entries.size(), 8U);
  EXPECT_EQ(std::get<std::int64_t>(std::get<NestedStats>(nested.entries.at("allocations")).entries.at("freed")), 2);
}

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

TEST_F(HostHeapTest, ADestroyedStreamsWorkIsWaitedFor) {
  const StreamHandle gone = driver_.create_stream();
  void* const block = allocator_.allocate_host(kMega);
  driver_.occupy(gone, 10ms);
  allocator_.record_host_stream(block, gone);
  driver_.destroy_stream(gone);
  allocator_.deallocate_host(block);
  EXPECT_EQ(allocator_.allocate_host(kMega), block);
  EXPECT_EQ(driver_.host_synchronizations(), 1U);
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

TEST_F(HostHeapTest, ARefusedEventIsTriedAgainAndTold) {
  void* const block = allocator_.allocate_host(kMega);
  driver_.occupy(copies_, 10ms);
  allocator_.record_host_stream(block, copies_);
  driver_.fail_call("cuEventRecord", 1, CUDA_ERROR_LAUNCH_FAILED);
  driver_.fail_call("cuEventRecord", 2, CUDA_ERROR_LAUNCH_FAILED);
  allocator_.deallocate_host(block);
  EXPECT_THROW(static_cast<void>(allocator_.allocate_host(kMega)), DriverError);
  EXPECT_NE(allocator_.allocate_host(kMega), block);
  driver_.run_until_idle();
  EXPECT_EQ(allocator_.allocate_host(kMega), block);
}

TEST_F(HostHeapTest, OutOfMemoryComesAfterTheCacheWentBack) {
  void* const cached = allocator_.allocate_host(3 * kMega);
  void* const live = allocator_.allocate_host(1000);
  allocator_.deallocate_host(cached);
  driver_.fail_call("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(allocator_.allocate_host(8 * kMega), nullptr);
  EXPECT_EQ(driver_calls("cuMemFreeHost"), 1U);
  driver_.fail_call("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
  driver_.fail_call("cuMemHostAlloc", 2, CUDA_ERROR_OUT_OF_MEMORY);
  try {
    static_cast<void>(allocator_.allocate_host(9 * kMega));
    FAIL() << "expected no memory";
  } catch (const OutOfMemoryError& error) {
    const OutOfMemoryReport& report = error.report();
    EXPECT_EQ(report.device, -1);
    EXPECT_EQ(report.requested_bytes, 9 * kMega);
    EXPECT_EQ(report.reserved_bytes, 10 * kMega);
    EXPECT_EQ(report.reserved_bytes,
              report.allocated_bytes + report.pending_free_bytes + report.free_split_bytes + report.free_whole_bytes);
    EXPECT_NE(std::string(error.what()).find("out of memory"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("Tried to allocate 9.00 MiB"), std::string::npos);
  }
  EXPECT_THROW(static_cast<void>(allocator_.allocate_host(std::size_t{1} << 62)), OutOfMemoryError);
  allocator_.deallocate_host(live);
}

// A pending free serves before anything goes back.
// No request fails while a part of any segment could serve it.
TEST_F(HostHeapTest, AClassIsServedFromPagesBeforeOutOfMemory) {
  auto* const whole = static_cast<char*>(allocator_.allocate_host(4 * kMega));
  allocator_.deallocate_host(whole);
  EXPECT_EQ(allocator_.allocate_host(2 * kMega), whole);
  for (std::uint64_t k = 1; k <= 6; ++k) driver_.fail_call("cuMemHostAlloc", k, CUDA_ERROR_OUT_OF_MEMORY);
  void* const of_class = allocator_.allocate_host(100);
  EXPECT_EQ(of_class, whole + 2 * kMega);
  EXPECT_EQ(allocator_.host_memory_stats().active_bytes.current, std::int64_t{2 * kMega + 4096});
  EXPECT_EQ(allocator_.allocate_host(2 * kMega - 4096), whole + 2 * kMega + 4096) << "what is left begins at a page";
  EXPECT_THROW(static_cast<void>(allocator_.allocate_host(100)), OutOfMemoryError);
  allocator_.check();
  allocator_.deallocate_host(of_class);
  EXPECT_EQ(allocator_.allocate_host(4096), of_class);
}

TEST_F(HostHeapTest, WhatStreamsWereUsingServesBeforeOutOfMemory) {
  void* const block = allocator_.allocate_host(4 * kMega);
  driver_.occupy(copies_, 10ms);
  allocator_.record_host_stream(block, copies_);
  allocator_.deallocate_host(block);
  driver_.fail_call("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(allocator_.allocate_host(4 * kMega), block);
  EXPECT_EQ(driver_calls("cuMemFreeHost"), 0U);
}

TEST_F(HostHeapTest, WhatTheDriverRefusesToTakeStaysCached) {
  void* const block = allocator_.allocate_host(3 * kMega);
  allocator_.deallocate_host(block);
  driver_.fail_call("cuMemFreeHost", 1, CUDA_ERROR_INVALID_VALUE);
  EXPECT_THROW(allocator_.empty_host_cache(), DriverError);
  EXPECT_EQ(allocator_.host_memory_stats().allocations.current, 1);
  EXPECT_EQ(allocator_.allocate_host(3 * kMega), block);
}

TEST_F(HostHeapTest, PlainMemoryIsRegisteredWhereAskedFor) {
  void* const of_driver = allocator_.allocate_host(kMega + 1);
  allocator_.set_options("pinned_use_cuda_host_register:True,pinned_num_register_threads:4");
  auto* const plain = static_cast<unsigned char*>(allocator_.allocate_host(8 * kMega));
  EXPECT_EQ(driver_calls("cuMemHostRegister"), 1U);
  EXPECT_TRUE(std::all_of(plain, plain + 8 * kMega, [](unsigned char byte) { return byte == 0; }));
  unsigned flags = 0;
  EXPECT_NE(driver_.api().mem_host_get_flags(&flags, plain), CUDA_SUCCESS) << "it is none of the driver's";
  allocator_.set_options("pinned_use_cuda_host_register:False");
  allocator_.deallocate_host(of_driver);
  allocator_.deallocate_host(plain);
  allocator_.empty_host_cache();
  EXPECT_EQ(driver_calls("cuMemHostUnregister"), 1U);
  EXPECT_EQ(driver_calls("cuMemFreeHost"), 1U);
  EXPECT_EQ(allocator_.host_memory_stats().allocated_bytes.current, 0);
}

TEST_F(HostHeapTest, ARefusedRegistrationLeavesNothing) {
  allocator_.set_options("pinned_use_cuda_host_register:True");
  driver_.fail_call("cuMemHostRegister", 1, CUDA_ERROR_INVALID_VALUE);
  EXPECT_THROW(static_cast<void>(allocator_.allocate_host(kMega)), DriverError);
  EXPECT_EQ(allocator_.host_memory_stats().flat(), HostMemoryStats{}.flat());
  EXPECT_NE(allocator_.allocate_host(kMega), nullptr);
}

// What a scenario may leave half way: the blocks, which the loop frees.
using Blocks = std::vector<void*>;
void run_scenario(CachingAllocator& allocator, SimulatedDriver& driver, StreamHandle stream, Blocks& live) {
  const auto take = [&](std::size_t bytes) {
    live.push_back(allocator.allocate_host(bytes));
    return live.back();
  };
  const auto give = [&](void* block) {
    live.erase(std::find(live.begin(), live.end(), block));
    allocator.deallocate_host(block);
  };
  take(1000);
  void* const used = take(3 * kMega);
  driver.occupy(stream, 1ms);
  allocator.record_host_stream(used, stream);
  give(used);
  take(2 * kMega);
  driver.run_until_idle();
  take(3 * kMega);
  CUgraph graph = nullptr;
  const std::unique_ptr<CUgraph, std::function<void(CUgraph*)>> ends(&graph, [&](CUgraph* made) {
    driver.clear_faults();
    if (*made == nullptr) static_cast<void>(driver.api().stream_end_capture(stream, made));
    if (*made != nullptr) static_cast<void>(driver.api().graph_destroy(*made));
  });
  if (driver.api().stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) != CUDA_SUCCESS)
    throw DriverError(1, "cuStreamBeginCapture", "the scenario's own");
  void* const captured = take(500);
  allocator.record_host_stream(captured, stream);
  give(captured);
  if (driver.api().stream_end_capture(stream, &graph) != CUDA_SUCCESS)
    throw DriverError(1, "cuStreamEndCapture", "the scenario's own");
  allocator.empty_host_cache();
}

// Where the driver would allocate: that of before, if nothing is left allocated.
void* lowest_free_host_memory(SimulatedDriver& driver) {
  const DriverApi& api = driver.api();
  CUcontext context = nullptr;
  EXPECT_EQ(api.init(0), CUDA_SUCCESS);
  EXPECT_EQ(api.primary_ctx_retain(&context, 0), CUDA_SUCCESS);
  EXPECT_EQ(api.ctx_set_current(context), CUDA_SUCCESS);
  void* address = nullptr;
  EXPECT_EQ(api.mem_host_alloc(&address, 4096, 0), CUDA_SUCCESS);
  EXPECT_EQ(api.mem_free_host(address), CUDA_SUCCESS);
  EXPECT_EQ(api.ctx_set_current(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(api.primary_ctx_release(0), CUDA_SUCCESS);
  return address;
}

class HostFaultsTest : public ::testing::TestWithParam<std::tuple<int, const char*>> {};

// Every driver call in turn fails; after each the heap is whole, and in the end nothing is left.
TEST_P(HostFaultsTest, EachDriverCallMayFail) {
  const auto& [error, options] = GetParam();
  for (std::uint64_t call = 1;; ++call) {
    SimulatedDriver driver({.capacity_bytes = 64 * kMega});
    const StreamHandle stream = driver.create_stream();
    void* const lowest = lowest_free_host_memory(driver);
    std::uint64_t injected = 0;
    {
      CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse(options)});
      Blocks live;
      driver.fail_call("", call, error);
      try {
        run_scenario(allocator, driver, stream, live);
      } catch (const Error&) {
      }
      injected = driver.faults_injected();
      driver.clear_faults();
      allocator.check();
      for (void* block : live) allocator.deallocate_host(block);
      driver.run_until_idle();
      allocator.empty_host_cache();
      allocator.check();
      EXPECT_EQ(allocator.host_memory_stats().active_requests.current, 0) << "call " << call;
      EXPECT_EQ(allocator.host_memory_stats().allocated_bytes.current, 0) << "call " << call;
    }
    EXPECT_EQ(lowest_free_host_memory(driver), lowest) << "call " << call;
    if (injected == 0) break;
    ASSERT_LT(call, 500U);
  }
}

INSTANTIATE_TEST_SUITE_P(Errors, HostFaultsTest,
                         ::testing::Combine(::testing::Values(CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE),
                                            ::testing::Values("", "pinned_use_cuda_host_register:True")));

TEST(HostHeapThreadsTest, BlocksOfManyThreadsNeverOverlap) {
  SimulatedDriver driver({.capacity_bytes = 64 * kMega, .drive = Drive::free});
  CachingAllocator allocator({.driver = &driver.api()});
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      const StreamHandle stream = driver.create_stream();
      std::vector<std::pair<unsigned char*, std::size_t>> held;
      std::uint32_t random = static_cast<std::uint32_t>(number) + 1;
      for (int step = 0; step < 400; ++step) {
        random = random * 1664525 + 1013904223;
        const std::size_t bytes = (random >> 8) % (step % 10 == 0 ? 2 * kMega : 8000) + 1;
        auto* const block = static_cast<unsigned char*>(allocator.allocate_host(bytes));
        block[0] = block[bytes - 1] = static_cast<unsigned char>(number);
        held.emplace_back(block, bytes);
        if (held.size() < 8) continue;
        const auto [first, size] = held[random % held.size()];
        EXPECT_EQ(first[0], static_cast<unsigned char>(number));
        EXPECT_EQ(first[size - 1], static_cast<unsigned char>(number));
        if (step % 3 == 0) allocator.record_host_stream(first, stream);
        allocator.deallocate_host(first);
        held.erase(held.begin() + (random % static_cast<std::uint32_t>(held.size())));
        if (step % 100 == 0) allocator.empty_host_cache();
      }
      for (const auto& [block, bytes] : held) allocator.deallocate_host(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  allocator.empty_host_cache();
  allocator.check();
  EXPECT_EQ(allocator.host_memory_stats().allocated_bytes.current, 0);
}

// The memory policy of the calling thread: its mode, and whether node 0 is its node.
std::optional<std::pair<int, bool>> thread_policy() {
  int mode = 0;
  std::array<unsigned long, 16> nodes{};
  if (::syscall(SYS_get_mempolicy, &mode, nodes.data(), 1024UL, nullptr, 0UL) != 0) return std::nullopt;
  return std::pair(mode, nodes[0] == 1);
}

TEST(NumaPreferenceTest, PagesComeFromTheDevicesNodeForAScope) {
  const auto before = thread_policy();
  if (!before) GTEST_SKIP() << "the kernel tells nothing of memory policies here";
  {
    const NumaPreference none(std::nullopt);
    EXPECT_EQ(thread_policy(), before);
    const NumaPreference preference(0);
    EXPECT_EQ(thread_policy(), std::pair(int{MPOL_PREFERRED}, true));
  }
  EXPECT_EQ(thread_policy(), before);
}

// The simulated driver, with a node of its own, which looks at the policy of the thread that allocates.
TEST(NumaPreferenceTest, TheDriverAllocatesUnderIt) {
  if (!thread_policy()) GTEST_SKIP() << "the kernel tells nothing of memory policies here";
  struct Watch {
    SimulatedDriver driver{{.capacity_bytes = 64 * kMega}};
    std::optional<std::pair<int, bool>> seen;
    int questions = 0;
  } watch;
  DriverApi api = watch.driver.api();
  api.device_get_attribute = {&watch, [](void* self, int* value, CUdevice_attribute attribute, CUdevice device) {
                                auto& of = *static_cast<Watch*>(self);
                                if (static_cast<int>(attribute) != 134)
                                  return of.driver.api().device_get_attribute(value, attribute, device);
                                ++of.questions;
                                *value = 0;
                                return CUDA_SUCCESS;
                              }};
  api.mem_host_alloc = {&watch, [](void* self, void** pointer, std::size_t bytes, unsigned flags) {
                          auto& of = *static_cast<Watch*>(self);
                          of.seen = thread_policy();
                          return of.driver.api().mem_host_alloc(pointer, bytes, flags);
                        }};
  CachingAllocator allocator({.driver = &api});
  static_cast<void>(allocator.allocate_host(kMega));
  static_cast<void>(allocator.allocate_host(4 * kMega));
  EXPECT_EQ(watch.seen, std::pair(int{MPOL_PREFERRED}, true));
  EXPECT_EQ(watch.questions, 1);
}

// No call of the driver is made under the heap's lock: during each one another thread allocates.
TEST(HostHeapLockTest, NoDriverCallIsMadeUnderTheLock) {
  struct Watch {
    SimulatedDriver driver{{.capacity_bytes = 64 * kMega}};
    CachingAllocator* allocator = nullptr;
    int calls = 0;
    void meanwhile() {
      if (allocator == nullptr) return;
      ++calls;
      std::thread([this] { static_cast<void>(allocator->host_memory_stats()); }).join();
    }
  } watch;
  DriverApi api = watch.driver.api();
  api.event_query = {&watch, [](void* self, CUevent event) {
                       auto& of = *static_cast<Watch*>(self);
                       of.meanwhile();
                       return of.driver.api().event_query(event);
                     }};
  api.event_record = {&watch, [](void* self, CUevent event, CUstream stream) {
                        auto& of = *static_cast<Watch*>(self);
                        of.meanwhile();
                        return of.driver.api().event_record(event, stream);
                      }};
  api.event_create = {&watch, [](void* self, CUevent* event, unsigned flags) {
                        auto& of = *static_cast<Watch*>(self);
                        of.meanwhile();
                        return of.driver.api().event_create(event, flags);
                      }};
  api.event_synchronize = {&watch, [](void* self, CUevent event) {
                             auto& of = *static_cast<Watch*>(self);
                             of.meanwhile();
                             return of.driver.api().event_synchronize(event);
                           }};
  api.mem_host_alloc = {&watch, [](void* self, void** pointer, std::size_t bytes, unsigned flags) {
                          auto& of = *static_cast<Watch*>(self);
                          of.meanwhile();
                          return of.driver.api().mem_host_alloc(pointer, bytes, flags);
                        }};
  api.mem_free_host = {&watch, [](void* self, void* pointer) {
                         auto& of = *static_cast<Watch*>(self);
                         of.meanwhile();
                         return of.driver.api().mem_free_host(pointer);
                       }};
  CachingAllocator allocator({.driver = &api});
  const StreamHandle stream = watch.driver.create_stream();
  watch.allocator = &allocator;
  for (int i = 0; i < 2; ++i) {
    void* const block = allocator.allocate_host(kMega);
    watch.driver.occupy(stream, 1ms);
    allocator.record_host_stream(block, stream);
    allocator.deallocate_host(block);
    static_cast<void>(allocator.allocate_host(100));
  }
  allocator.empty_host_cache();
  EXPECT_GE(watch.calls, 7);
  watch.allocator = nullptr;
}

}  // namespace
}  // namespace cistern
