// Page-locked host memory: sizes, reuse, what streams keep, what comes from the driver and goes back.

#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "allocator/host_sizes.h"
#include "runtime/driver_api.h"
#include "tests/allocator/host_heap_fixture.h"
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

// A driver may want the stream's and the event's context to be current; mostly none need be.
TEST_F(HostHeapTest, ADriverThatWantsAContextGetsIt) {
  allocator_.register_stream(copies_);
  const auto turn = [&] {
    void* const block = allocator_.allocate_host(kMega);
    allocator_.record_host_stream(block, copies_);
    allocator_.deallocate_host(block);
    driver_.run_until_idle();
    return block;
  };
  void* const block = turn();
  EXPECT_EQ(turn(), block);
  for (const char* const entry : {"cuEventQuery", "cuStreamIsCapturing", "cuEventRecord"}) {
    const std::uint64_t calls = driver_calls("cuCtxGetCurrent");
    driver_.fail_call(entry, 1, CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(turn(), block) << entry;
    EXPECT_GT(driver_calls("cuCtxGetCurrent"), calls) << entry;
  }
  EXPECT_EQ(turn(), block);  // takes an event again
  const std::uint64_t calls = driver_calls("cuCtxGetCurrent");
  EXPECT_EQ(turn(), block);
  EXPECT_EQ(driver_calls("cuCtxGetCurrent"), calls);
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

}  // namespace
}  // namespace cistern
