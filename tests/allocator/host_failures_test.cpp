// Page-locked host memory when the driver refuses: what serves before a request fails, and that each call may fail.

#include <cistern/error.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/allocator/host_heap_fixture.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

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

// A pending free serves before anything goes back.
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

}  // namespace
}  // namespace cistern
