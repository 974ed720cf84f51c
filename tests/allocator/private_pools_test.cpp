// Private pools as graph capture uses them: which requests they take, what happens to their
// memory, and what a capture under way forbids.

#include <cistern/allocator.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tests/allocator/private_pools_fixture.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

class PrivatePoolsUnder24Test : public PrivatePoolsTest {
 protected:
  PrivatePoolsUnder24Test() : PrivatePoolsTest("oom_dump:off,pytorch_rules:2.4") {}
};

TEST_F(PrivatePoolsTest, APoolTakesTheRequestsOfItsStreamAndNoOthers) {
  allocator_.begin_allocate_to_pool(0, kGraph, PoolFilter::stream(stream_));
  EXPECT_EQ(pool_of(allocator_.allocate(1000, stream_)), kGraph);
  EXPECT_EQ(pool_of(allocator_.allocate(1000, other_)), PoolId{});
  allocator_.end_allocate_to_pool(0, kGraph);
  EXPECT_EQ(pool_of(allocator_.allocate(1000, stream_)), PoolId{});
}

TEST_F(PrivatePoolsTest, APoolTakesTheRequestsOfEveryStreamThatJoinedItsCapture) {
  begin_capture(kGraph, 41);
  captures_.begin_capture(other_, 41);
  const StreamHandle alone = driver_.create_stream();
  EXPECT_EQ(pool_of(allocator_.allocate(1000, stream_)), kGraph);
  EXPECT_EQ(pool_of(allocator_.allocate(1000, other_)), kGraph);
  captures_.begin_capture(alone, 42);
  EXPECT_EQ(pool_of(allocator_.allocate(1000, alone)), PoolId{}) << "it is in another capture";
  captures_.end_capture(alone);
  captures_.end_capture(other_);
  end_capture(kGraph);
}

TEST_F(PrivatePoolsTest, APoolTakesTheRequestsOfTheThreadThatBegan) {
  allocator_.begin_allocate_to_pool(0, kShared, PoolFilter::this_thread());
  EXPECT_EQ(pool_of(allocator_.allocate(1000, other_)), kShared);
  std::thread([&] { EXPECT_EQ(pool_of(allocator_.allocate(1000, other_)), PoolId{}); }).join();
  allocator_.end_allocate_to_pool(0, kShared);
}

TEST_F(PrivatePoolsTest, APoolIsOfOneDevice) {
  allocator_.begin_allocate_to_pool(0, kShared, PoolFilter::every_stream());
  EXPECT_EQ(pool_of(allocator_.allocate(1000, nullptr, 0)), kShared);
  EXPECT_EQ(pool_of(allocator_.allocate(1000, nullptr, 1)), PoolId{});
  allocator_.end_allocate_to_pool(0, kShared);
  EXPECT_THROW(allocator_.begin_allocate_to_pool(1, kShared, PoolFilter::stream(stream_)), InvalidArgument)
      << "the stream is of device 0";
}

TEST_F(PrivatePoolsTest, OfTwoPoolsThatTakeARequestTheNewestServesIt) {
  allocator_.begin_allocate_to_pool(0, kGraph, PoolFilter::every_stream());
  allocator_.begin_allocate_to_pool(0, kShared, PoolFilter::stream(stream_));
  EXPECT_EQ(pool_of(allocator_.allocate(1000, stream_)), kShared);
  EXPECT_EQ(pool_of(allocator_.allocate(1000, other_)), kGraph);
  allocator_.end_allocate_to_pool(0, kShared);
  EXPECT_EQ(pool_of(allocator_.allocate(1000, stream_)), kGraph);
  allocator_.end_allocate_to_pool(0, kGraph);
}

TEST_F(PrivatePoolsUnder24Test, OfTwoPoolsThatTakeARequestTheOldestServesIt) {
  allocator_.begin_allocate_to_pool(0, kGraph, PoolFilter::every_stream());
  allocator_.begin_allocate_to_pool(0, kShared, PoolFilter::stream(stream_));
  EXPECT_EQ(pool_of(allocator_.allocate(1000, stream_)), kGraph);
  allocator_.end_allocate_to_pool(0, kGraph);
  EXPECT_EQ(pool_of(allocator_.allocate(1000, stream_)), kShared);
  allocator_.end_allocate_to_pool(0, kShared);
}

TEST_F(PrivatePoolsTest, MemoryOfAPoolIsUntouchedByOthersWhileItsGraphLives) {
  begin_capture(kGraph, 1);
  void* inside = allocator_.allocate(3 * kMega, stream_);
  allocator_.deallocate(inside);
  end_capture(kGraph);
  EXPECT_NE(allocator_.allocate(3 * kMega, stream_), inside);
  allocator_.empty_cache();
  EXPECT_EQ(pool_of(inside), kGraph) << "a flush leaves the pool its free segments";
  allocator_.trim(0);
  EXPECT_EQ(pool_of(inside), kGraph);

  begin_capture(kGraph, 2);  // a second graph shares the pool
  EXPECT_EQ(allocator_.allocate(3 * kMega, stream_), inside);
  end_capture(kGraph);
  EXPECT_EQ(allocator_.pool_use_count(0, kGraph), 2U);
}

TEST_F(PrivatePoolsTest, AReleasedPoolGivesItsFreeSegmentsBackAtTheNextFullFlush) {
  begin_capture(kGraph, 1);
  void* live = allocator_.allocate(3 * kMega, stream_);
  allocator_.deallocate(allocator_.allocate(30 * kMega, stream_));
  end_capture(kGraph);
  allocator_.release_pool(0, kGraph);
  EXPECT_EQ(driver_.used_bytes(), 50 * kMega) << "not before";
  allocator_.empty_cache();
  EXPECT_EQ(driver_.used_bytes(), 20 * kMega) << "a live block keeps its segment";
  EXPECT_EQ(pool_of(live), kGraph);
  allocator_.deallocate(live);
  allocator_.empty_cache();
  EXPECT_EQ(driver_.used_bytes(), 0U);
  EXPECT_THROW(allocator_.release_pool(0, kGraph), InvalidArgument) << "the pool is gone";
}

TEST_F(PrivatePoolsTest, UsesAreCountedAndTheLastOneFreesThePool) {
  for (std::uint64_t capture = 1; capture <= 3; ++capture) {
    begin_capture(kGraph, capture);
    allocator_.deallocate(allocator_.allocate(1000, stream_));
    end_capture(kGraph);
  }
  EXPECT_EQ(allocator_.pool_use_count(0, kGraph), 3U);
  allocator_.release_pool(0, kGraph);
  allocator_.release_pool(0, kGraph);
  allocator_.empty_cache();
  EXPECT_EQ(driver_.used_bytes(), 2 * kMega) << "one graph is left";
  allocator_.release_pool(0, kGraph);
  EXPECT_THROW(allocator_.begin_allocate_to_pool(0, kGraph, PoolFilter::every_stream()), InvalidArgument);
  allocator_.empty_cache();
  EXPECT_EQ(driver_.used_bytes(), 0U);
  allocator_.begin_allocate_to_pool(0, kGraph, PoolFilter::every_stream());
  EXPECT_EQ(allocator_.pool_use_count(0, kGraph), 1U) << "the id may be used again once the pool is gone";
  allocator_.end_allocate_to_pool(0, kGraph);
}

TEST_F(PrivatePoolsTest, WrongCallsAreRefusedAndChangeNothing) {
  const PoolFilter all = PoolFilter::every_stream();
  EXPECT_THROW(allocator_.begin_allocate_to_pool(0, PoolId{}, all), InvalidArgument);
  EXPECT_THROW(allocator_.begin_allocate_to_pool(0, PoolId{1, 1}, all), InvalidArgument);
  EXPECT_THROW(allocator_.begin_allocate_to_pool(2, kGraph, all), InvalidArgument) << "there is no device 2";
  EXPECT_THROW(allocator_.end_allocate_to_pool(0, kGraph), InvalidArgument);
  EXPECT_THROW(allocator_.release_pool(0, kGraph), InvalidArgument);
  EXPECT_EQ(allocator_.pool_use_count(0, kGraph), 0U);
  allocator_.begin_allocate_to_pool(0, kGraph, all);
  try {
    allocator_.begin_allocate_to_pool(0, kGraph, all);
    ADD_FAILURE() << "the id is recorded to already";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("pool (7, 0)"), std::string::npos) << error.what();
  }
  EXPECT_EQ(allocator_.pool_use_count(0, kGraph), 1U);
  allocator_.end_allocate_to_pool(0, kGraph);
  EXPECT_THROW(allocator_.end_allocate_to_pool(0, kGraph), InvalidArgument);
}

TEST_F(PrivatePoolsTest, ReleasedWhileRecordedToItStillServesUntilTheEnd) {
  allocator_.begin_allocate_to_pool(0, kGraph, PoolFilter::every_stream());
  allocator_.release_pool(0, kGraph);
  void* block = allocator_.allocate(1000, stream_);
  EXPECT_EQ(pool_of(block), kGraph);
  allocator_.end_allocate_to_pool(0, kGraph);
  allocator_.deallocate(block);
  allocator_.empty_cache();
  EXPECT_EQ(driver_.used_bytes(), 0U);
}

TEST_F(PrivatePoolsTest, StatisticsCountPoolsInTheOrdinaryFigures) {
  void* outside = allocator_.allocate(1000, stream_);
  begin_capture(kGraph, 1);
  void* inside = allocator_.allocate(1000, stream_);
  const MemoryStats stats = allocator_.memory_stats();
  EXPECT_EQ(stats.allocation.small_pool.current, 2);
  EXPECT_EQ(stats.segment.all.current, 2) << "each pool has its own";
  EXPECT_EQ(stats.inactive_split.all.current, 2);
  EXPECT_EQ(stats.reserved_bytes.all.current, static_cast<std::int64_t>(4 * kMega));
  allocator_.deallocate(inside);
  allocator_.deallocate(outside);
  end_capture(kGraph);
  EXPECT_EQ(allocator_.memory_stats().active.all.current, 0);
}

TEST_F(PrivatePoolsTest, WhatEachPoolHasReservedIsCountedByItsId) {
  const std::pair<std::uint64_t, std::uint64_t> graph{7, 0}, shared{0, 7};
  EXPECT_TRUE(allocator_.reserved_bytes_by_private_pools().empty());
  EXPECT_EQ(allocator_.memory_stats_flat().size(), 122U);
  static_cast<void>(allocator_.allocate(5 * kMega, stream_));
  begin_capture(kGraph, 1);
  void* small = allocator_.allocate(1000, stream_);
  void* large = allocator_.allocate(30 * kMega, stream_);
  allocator_.begin_allocate_to_pool(0, kShared, PoolFilter::stream(other_));
  auto pools = allocator_.reserved_bytes_by_private_pools();
  ASSERT_EQ(pools.size(), 2U);
  EXPECT_EQ(pools[graph].all.current, static_cast<std::int64_t>(32 * kMega));
  EXPECT_EQ(pools[graph].small_pool.allocated, static_cast<std::int64_t>(2 * kMega));
  EXPECT_EQ(pools[graph].large_pool.peak, static_cast<std::int64_t>(30 * kMega));
  EXPECT_EQ(pools[shared], PoolStat{}) << "it is there, and has nothing";

  const auto flat = allocator_.memory_stats_flat();
  EXPECT_EQ(flat.size(), 122U + 2 * 12U);
  EXPECT_EQ(flat.at("reserved_bytes_by_private_pools.7_0.all.current"), static_cast<std::int64_t>(32 * kMega));
  EXPECT_EQ(flat.at("reserved_bytes_by_private_pools.0_7.large_pool.freed"), 0);
  const NestedStats nested = allocator_.memory_stats_nested();
  const auto& by_pool = std::get<NestedStats>(nested.entries.at("reserved_bytes_by_private_pools")).entries;
  EXPECT_EQ(std::get<NestedStats>(by_pool.at("7_0")).entries.size(), 3U);

  allocator_.end_allocate_to_pool(0, kShared);
  allocator_.release_pool(0, kShared);
  EXPECT_EQ(allocator_.reserved_bytes_by_private_pools().size(), 1U) << "a pool that is gone has no figure";
  end_capture(kGraph);
  allocator_.deallocate(small);
  allocator_.deallocate(large);
}

TEST_F(PrivatePoolsTest, WhatPoolsHaveReservedIsResetWithTheDevicesFigures) {
  const std::pair<std::uint64_t, std::uint64_t> graph{7, 0};
  begin_capture(kGraph, 1);
  void* large = allocator_.allocate(30 * kMega, stream_);
  static_cast<void>(allocator_.allocate(12 * kMega, stream_));
  end_capture(kGraph);
  allocator_.deallocate(large);
  allocator_.release_pool(0, kGraph);
  allocator_.empty_cache();
  const auto reserved = [&] { return allocator_.reserved_bytes_by_private_pools().at(graph).all; };
  EXPECT_EQ(reserved(), (Stat{12 * kMega, 42 * kMega, 42 * kMega, 30 * kMega}));
  allocator_.reset_peak_memory_stats();
  EXPECT_EQ(reserved(), (Stat{12 * kMega, 12 * kMega, 42 * kMega, 30 * kMega}));
  allocator_.reset_accumulated_memory_stats();
  EXPECT_EQ(reserved(), (Stat{12 * kMega, 12 * kMega, 0, 0}));
}

TEST_F(PrivatePoolsUnder24Test, NoFiguresAreKeptByPool) {
  begin_capture(kGraph, 1);
  static_cast<void>(allocator_.allocate(1000, stream_));
  EXPECT_TRUE(allocator_.reserved_bytes_by_private_pools().empty());
  EXPECT_EQ(allocator_.memory_stats_flat().size(), 122U);
  EXPECT_EQ(allocator_.memory_stats_nested().entries.count("reserved_bytes_by_private_pools"), 0U);
  end_capture(kGraph);
}

TEST_F(PrivatePoolsTest, ASnapshotOfOnePoolHasItsSegmentsOnly) {
  static_cast<void>(allocator_.allocate(1000, stream_));
  begin_capture(kGraph, 1);
  void* inside = allocator_.allocate(5 * kMega, stream_);
  end_capture(kGraph);
  const std::vector<SegmentInfo> segments = allocator_.snapshot(0, kGraph);
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_EQ(segments[0].address, reinterpret_cast<std::uintptr_t>(inside));
  EXPECT_EQ(segments[0].segment_pool_id, std::pair(std::int64_t{7}, std::int64_t{0}));
  EXPECT_EQ(allocator_.snapshot(0, PoolId{}).size(), 1U);
  EXPECT_THROW(static_cast<void>(allocator_.snapshot(0, PoolId{9, 0})), InvalidArgument);
}

TEST_F(PrivatePoolsTest, WhileNothingIsRecordedOnlyTheGuardOfAFreeAsksAboutCaptures) {
  allocator_.deallocate(allocator_.allocate(1000, stream_));
  void* block = allocator_.allocate(1000, stream_);
  allocator_.record_stream(block, other_);
  EXPECT_EQ(captures_.questions(), 0);
  allocator_.deallocate(block);
  EXPECT_EQ(captures_.questions(), 1) << "an event on a stream that captures would be the graph's";
  static_cast<void>(allocator_.allocate(1000, stream_));
  EXPECT_EQ(captures_.questions(), 1);
}

TEST_F(PrivatePoolsTest, NoEventIsQueriedDuringACapture) {
  void* pending = allocator_.allocate(kMega, stream_);
  driver_.occupy(other_, 1ms);
  allocator_.deallocate(pending, other_);
  driver_.run_until_idle();
  begin_capture(kGraph, 1);
  const std::uint64_t queries = driver_.calls("cuEventQuery");
  static_cast<void>(allocator_.allocate(kMega, stream_));
  EXPECT_EQ(driver_.calls("cuEventQuery"), queries);
  EXPECT_EQ(allocator_.memory_stats().active.all.current, 2) << "the finished free is not noticed";
  end_capture(kGraph);
  EXPECT_EQ(allocator_.allocate(kMega, stream_), pending);
}

// The other thread may ask, since it asks in relaxed mode; under 2.4's rules it must not.
TEST_F(PrivatePoolsTest, AnotherThreadGoesOnAsUsualDuringACapture) {
  void* pending = allocator_.allocate(200 * kMega, stream_);
  allocator_.deallocate(pending, other_);
  begin_capture(kGraph, 1);
  std::thread([&] {
    EXPECT_NE(allocator_.allocate(100 * kMega, other_), nullptr) << "it flushes, and waits for the pending free";
  }).join();
  EXPECT_EQ(allocator_.memory_stats().num_alloc_retries, 1);
  end_capture(kGraph);
}

TEST_F(PrivatePoolsTest, MemoryRunsOutEarlierDuringACapture) {
  allocator_.deallocate(allocator_.allocate(200 * kMega, stream_));
  begin_capture(kGraph, 1);
  EXPECT_THROW(static_cast<void>(allocator_.allocate(100 * kMega, stream_)), OutOfMemoryError)
      << "the cache is not flushed for it";
  EXPECT_EQ(allocator_.memory_stats().num_alloc_retries, 0);
  EXPECT_EQ(allocator_.memory_stats().num_sync_all_streams, 0);
  allocator_.empty_cache();
  EXPECT_EQ(driver_.used_bytes(), 200 * kMega) << "nor by request";
  end_capture(kGraph);
  EXPECT_NE(allocator_.allocate(100 * kMega, stream_), nullptr);
}

// A block that another stream used in the capture is done when the capture is: its join says so.
TEST_F(PrivatePoolsTest, AFreeDuringACaptureIsPutOffUntilAfterIt) {
  begin_capture(kGraph, 1);
  captures_.begin_capture(other_, 1);
  void* block = allocator_.allocate(kMega, stream_);
  allocator_.record_stream(block, other_);
  allocator_.deallocate(block);
  EXPECT_EQ(allocator_.memory_stats().allocated_bytes.all.current, 0);
  EXPECT_EQ(allocator_.memory_stats().active.all.current, 1);
  EXPECT_EQ(allocator_.snapshot().segments.at(0).blocks.at(0).state, BlockState::active_pending_free);
  EXPECT_NE(allocator_.allocate(kMega, stream_), block);
  EXPECT_EQ(driver_.calls("cuEventRecord"), 0U);
  captures_.end_capture(other_);
  end_capture(kGraph);
  static_cast<void>(allocator_.allocate(1000, stream_));
  EXPECT_EQ(allocator_.memory_stats().active.all.current, 2) << "the put-off free is complete";
  EXPECT_EQ(driver_.calls("cuEventRecord"), 0U) << "a stream that used it in the capture only needs no event";
}

// It is put off whichever stream used the block: nothing is recorded while the capture is under way.
TEST_F(PrivatePoolsTest, AFreeDuringACaptureIsPutOffThoughItsStreamIsNotCaptured) {
  void* block = allocator_.allocate(kMega, stream_);
  driver_.occupy(other_, 1ms);
  allocator_.record_stream(block, other_);
  begin_capture(kGraph, 1);
  allocator_.deallocate(block);
  static_cast<void>(allocator_.allocate(kMega, stream_));
  EXPECT_EQ(driver_.calls("cuEventRecord"), 0U) << "nor by a request of the capture";
  end_capture(kGraph);
  EXPECT_NE(allocator_.allocate(kMega, stream_), block);
  EXPECT_EQ(driver_.calls("cuEventRecord"), 1U) << "the first allocation after the capture records it";
  driver_.run_until_idle();
  EXPECT_EQ(allocator_.allocate(kMega, stream_), block);
}

// Work that was queued before the capture is real: the free waits for it.
TEST_F(PrivatePoolsTest, AUseFromBeforeTheCaptureIsStillWaitedFor) {
  void* block = allocator_.allocate(kMega, stream_);
  driver_.occupy(other_, 1ms);
  allocator_.record_stream(block, other_);
  begin_capture(kGraph, 1);
  captures_.begin_capture(other_, 1);
  allocator_.record_stream(block, other_);
  allocator_.deallocate(block);
  captures_.end_capture(other_);
  end_capture(kGraph);
  EXPECT_NE(allocator_.allocate(kMega, stream_), block);
  driver_.run_until_idle();
  EXPECT_EQ(allocator_.allocate(kMega, stream_), block);
}

TEST_F(PrivatePoolsTest, AUseFromAfterACaptureIsWaitedForThoughTheStreamUsedItInTheCaptureToo) {
  begin_capture(kGraph, 1);
  captures_.begin_capture(other_, 1);
  void* block = allocator_.allocate(kMega, stream_);
  allocator_.record_stream(block, other_);
  captures_.end_capture(other_);
  end_capture(kGraph);
  driver_.occupy(other_, 1ms);
  allocator_.record_stream(block, other_);
  begin_capture(kGraph, 2);
  allocator_.deallocate(block);  // put off
  end_capture(kGraph);
  static_cast<void>(allocator_.allocate(1000, stream_));
  EXPECT_EQ(allocator_.memory_stats().active.all.current, 2) << "it waits for the stream's work";
  driver_.run_until_idle();
  static_cast<void>(allocator_.allocate(1000, stream_));
  EXPECT_EQ(allocator_.memory_stats().active.all.current, 2) << "only what was asked for since";
}

// An event on a stream that another thread captures would become a part of its graph.
TEST_F(PrivatePoolsTest, AFreeOfAnotherThreadWaitsForTheCaptureOfTheStreamThatUsedIt) {
  void* block = allocator_.allocate(kMega, other_);
  allocator_.record_stream(block, stream_);
  begin_capture(kGraph, 1);
  std::thread([&] {
    allocator_.deallocate(block);
    EXPECT_NE(allocator_.allocate(kMega, other_), block);
  }).join();
  end_capture(kGraph);
  EXPECT_EQ(allocator_.allocate(kMega, other_), block);
}

TEST_F(PrivatePoolsTest, SegmentsComeInRelaxedModeDuringACapture) {
  begin_capture(kGraph, 1);
  EXPECT_NE(allocator_.allocate(50 * kMega, stream_), nullptr);
  std::thread([&] {
    EXPECT_NE(allocator_.allocate(50 * kMega, other_), nullptr);
    allocator_.trim(0);
  }).join();
  end_capture(kGraph);
}

TEST_F(PrivatePoolsTest, AReportNamesThePoolsThatKeepTheMemory) {
  begin_capture(kGraph, 1);
  allocator_.deallocate(allocator_.allocate(200 * kMega, stream_));
  end_capture(kGraph);
  try {
    static_cast<void>(allocator_.allocate(100 * kMega, stream_));
    ADD_FAILURE() << "the pool keeps what the device lacks";
  } catch (const OutOfMemoryError& error) {
    const OutOfMemoryReport& report = error.report();
    EXPECT_EQ(report.cause, OutOfMemoryCause::graph_pools);
    EXPECT_EQ(report.private_pools_free_bytes, 200 * kMega);
    EXPECT_EQ(report.reserved_bytes, report.allocated_bytes + report.pending_free_bytes + report.free_split_bytes +
                                         report.free_whole_bytes + report.private_pools_free_bytes);
    EXPECT_FALSE(report.advice.empty());
    EXPECT_NE(std::string(error.what()).find("with 200.00 MiB of it free in private pools"), std::string::npos)
        << error.what();
  }
  EXPECT_NE(allocator_.memory_report().find("free, private"), std::string::npos);
}

TEST_F(PrivatePoolsUnder24Test, ACaptureStopsEveryThread) {
  void* pending = allocator_.allocate(kMega, stream_);
  allocator_.deallocate(pending, other_);
  begin_capture(kGraph, 1);
  std::thread([&] {
    const std::uint64_t queries = driver_.calls("cuEventQuery");
    static_cast<void>(allocator_.allocate(kMega, other_));
    EXPECT_EQ(driver_.calls("cuEventQuery"), queries);
    EXPECT_THROW(static_cast<void>(allocator_.allocate(255 * kMega, other_)), OutOfMemoryError);
    EXPECT_EQ(allocator_.memory_stats().num_alloc_retries, 0);
  }).join();
  end_capture(kGraph);
}

// `direct` caches nothing, but a graph's memory must stay where it is.
TEST(PrivatePoolsWithoutACache, APoolKeepsItsMemoryAllTheSame) {
  SimulatedDriver driver({.capacity_bytes = 64 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse("policy:direct")});
  allocator.begin_allocate_to_pool(0, kGraph, PoolFilter::every_stream());
  void* block = allocator.allocate(kMega);
  allocator.deallocate(block);
  EXPECT_EQ(driver.used_bytes(), 2 * kMega);
  EXPECT_EQ(allocator.allocate(kMega), block);
  allocator.end_allocate_to_pool(0, kGraph);
  allocator.deallocate(block);
  allocator.release_pool(0, kGraph);
  allocator.check();
  allocator.empty_cache();
  EXPECT_EQ(driver.used_bytes(), 0U);
}

}  // namespace
}  // namespace cistern
