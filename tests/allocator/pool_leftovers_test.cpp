// What private pools leave that have no use left: when their memory goes, and when they do.

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>

#include "tests/allocator/private_pools_fixture.h"

namespace cistern {
namespace {

class PoolLeftoversTest : public PrivatePoolsTest {};

TEST_F(PoolLeftoversTest, APoolWhoseLastSegmentATrimTakesIsGone) {
  begin_capture(kGraph, 1);
  void* const block = allocator_.allocate(30 * kMega, stream_);
  end_capture(kGraph);
  allocator_.deallocate(block);
  allocator_.release_pool(0, kGraph);
  EXPECT_EQ(allocator_.reserved_bytes_by_private_pools().size(), 1U);
  EXPECT_EQ(allocator_.trim(0), 30 * kMega);
  EXPECT_TRUE(allocator_.reserved_bytes_by_private_pools().empty());
}

// One that ended while its thread captured waits for a thread that does not; it keeps nobody else waiting.
TEST_F(PoolLeftoversTest, APoolThatEndsBesideOneThatWaitsLeavesNothing) {
  const auto make_pool = [this] {
    MemPool pool(allocator_);
    allocator_.deallocate(pool.allocate(30 * kMega, other_));
    return std::make_unique<MemPool>(std::move(pool));
  };
  std::unique_ptr<MemPool> waits = make_pool();
  std::unique_ptr<MemPool> ends = make_pool();
  begin_capture(kGraph, 1);
  waits.reset();
  EXPECT_EQ(allocator_.memory_stats().reserved_bytes.all.current, static_cast<std::int64_t>(60 * kMega));
  std::thread([&] { ends.reset(); }).join();
  EXPECT_EQ(allocator_.memory_stats().reserved_bytes.all.current, 0);
  end_capture(kGraph);
}

TEST_F(PoolLeftoversTest, AFreeOfAnOrdinaryBlockGivesNoPoolsMemoryBack) {
  begin_capture(kGraph, 1);
  {
    const MemPool pool(allocator_);
    allocator_.deallocate(pool.allocate(30 * kMega, other_));
  }
  std::thread([&] { allocator_.deallocate(allocator_.allocate(kMega, other_)); }).join();
  EXPECT_EQ(driver_.calls("cuMemFree"), 0U) << "which waits for the device";
  end_capture(kGraph);
  EXPECT_EQ(driver_.calls("cuMemFree"), 1U);
}

// Where the driver took the segment back late, and both pools had ended before.
TEST_F(PoolLeftoversTest, WithAPoolGoesTheOneAboveThatWaitedForIt) {
  void* block = nullptr;
  {
    const MemPool above(allocator_);
    const MemPool below(allocator_, {.parent = &above});
    block = below.allocate(30 * kMega, stream_);
  }
  driver_.fail_call("cuMemFree", 1, CUDA_ERROR_INVALID_VALUE);
  allocator_.deallocate(block);
  EXPECT_EQ(allocator_.reserved_bytes_by_private_pools().size(), 2U);
  EXPECT_EQ(allocator_.trim(0), 30 * kMega);
  EXPECT_TRUE(allocator_.reserved_bytes_by_private_pools().empty());
}

// Whose last block waited for the capture's end: the next request finds that it is free.
TEST_F(PoolLeftoversTest, WhatACaptureHeldUpGoesWithTheNextRequest) {
  begin_capture(kGraph, 1);
  {
    const MemPool pool(allocator_);
    void* const block = pool.allocate(30 * kMega, other_);
    allocator_.record_stream(block, stream_);
    allocator_.deallocate(block);
  }
  end_capture(kGraph);
  EXPECT_EQ(allocator_.memory_stats().reserved_bytes.all.current, static_cast<std::int64_t>(30 * kMega));
  static_cast<void>(allocator_.allocate(1000, other_));
  EXPECT_EQ(allocator_.memory_stats().reserved_bytes.all.current, static_cast<std::int64_t>(2 * kMega));
}

}  // namespace
}  // namespace cistern
