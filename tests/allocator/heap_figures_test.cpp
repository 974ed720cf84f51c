// What an allocator tells beside its statistics: of streams, of what it has free, and of the device's memory.

#include <cistern/allocator.h>
#include <cistern/mem_pool.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/allocator/classic_heap_case.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

using HeapFiguresTest = ClassicHeapCase;
using StreamStatsTest = ClassicHeapCase;

std::int64_t number_of(StreamHandle stream) {
  return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(stream));
}

TEST_F(StreamStatsTest, TellsWhoOwnsWhatAndWhomItWaitsFor) {
  void* block = allocator_.allocate(2 * kMega, stream_);
  static_cast<void>(allocator_.allocate(3 * kMega, stream_));
  driver_.occupy(other_, 1ms);
  allocator_.record_stream(block, other_);
  const auto before = std::chrono::steady_clock::now();
  allocator_.deallocate(block);
  const auto after = std::chrono::steady_clock::now();

  const std::vector<StreamStats> streams = allocator_.stream_stats();
  ASSERT_EQ(streams.size(), 2U);
  EXPECT_EQ(streams[0].stream, number_of(stream_));
  EXPECT_EQ(streams[0].reserved_bytes, 20 * kSignedMega);
  EXPECT_EQ(streams[0].live_bytes, 3 * kSignedMega);
  EXPECT_EQ(streams[0].pending_bytes, 2 * kSignedMega);
  EXPECT_EQ(streams[0].awaited_frees, 0);
  EXPECT_FALSE(streams[0].awaited_since);
  EXPECT_EQ(streams[1].stream, number_of(other_));
  EXPECT_EQ(streams[1].reserved_bytes, 0);
  EXPECT_EQ(streams[1].awaited_frees, 1);
  EXPECT_EQ(streams[1].awaited_bytes, 2 * kSignedMega);
  ASSERT_TRUE(streams[1].awaited_since);
  EXPECT_TRUE(before <= *streams[1].awaited_since && *streams[1].awaited_since <= after);

  driver_.run_until_idle(other_);
  static_cast<void>(allocator_.allocate(512, stream_));  // which looks
  EXPECT_FALSE(allocator_.oldest_pending_free());
  EXPECT_EQ(allocator_.stream_stats().at(0).pending_bytes, 0);
}

TEST_F(StreamStatsTest, TheOldestPendingFreeIsTheFirstThatIsStillAwaited) {
  EXPECT_FALSE(allocator_.oldest_pending_free());
  const StreamHandle slow = driver_.create_stream();
  void* first = allocator_.allocate(2 * kMega, stream_);
  void* second = allocator_.allocate(3 * kMega, stream_);
  for (const StreamHandle stream : {slow, other_}) driver_.occupy(stream, 1ms);
  allocator_.record_stream(first, slow);
  allocator_.record_stream(second, other_);
  allocator_.deallocate(first);
  allocator_.deallocate(second);

  const auto oldest = allocator_.oldest_pending_free();
  ASSERT_TRUE(oldest);
  EXPECT_EQ(oldest->address, reinterpret_cast<std::uintptr_t>(first));
  EXPECT_EQ(oldest->bytes, 2 * kSignedMega);
  EXPECT_EQ(oldest->owner, number_of(stream_));
  EXPECT_EQ(oldest->waits_for, number_of(slow));
  EXPECT_EQ(oldest->waits_for_device, 0);

  driver_.run_until_idle(slow);
  static_cast<void>(allocator_.allocate(512, stream_));
  const auto next = allocator_.oldest_pending_free();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->waits_for, number_of(other_));
  EXPECT_GE(next->since, oldest->since);
}

// A driver that is looked past while somebody waits for an event.
struct WatchedDriver {
  explicit WatchedDriver(SimulatedDriver& driver) : inner(driver.api()), api(driver.api()) {
    api.event_synchronize = {this, [](void* self, CUevent event) {
                               auto& watched = *static_cast<WatchedDriver*>(self);
                               watched.looks();
                               return watched.inner.event_synchronize(event);
                             }};
  }
  const DriverApi& inner;
  DriverApi api;
  std::function<void()> looks;
};

TEST_F(StreamStatsTest, AFreeThatAFlushWaitsForIsStillSeen) {
  WatchedDriver watched(driver_);
  CachingAllocator allocator({.driver = &watched.api, .options = AllocatorOptions::parse("policy:classic")});
  void* block = allocator.allocate(2 * kMega, stream_);
  driver_.occupy(other_, 1ms);
  allocator.record_stream(block, other_);
  allocator.deallocate(block);
  int looked = 0;
  watched.looks = [&] {
    ++looked;
    EXPECT_TRUE(allocator.oldest_pending_free());
    EXPECT_EQ(allocator.stream_stats().at(1).awaited_bytes, 2 * kSignedMega);
  };
  allocator.empty_cache();
  EXPECT_EQ(looked, 1);
  EXPECT_FALSE(allocator.oldest_pending_free());
}

TEST_F(StreamStatsTest, TheDefaultStreamIsStream0AndTheLast) {
  static_cast<void>(allocator_.allocate(kMega));
  static_cast<void>(allocator_.allocate(kMega, stream_));
  const std::vector<StreamStats> streams = allocator_.stream_stats();
  ASSERT_EQ(streams.size(), 2U);
  EXPECT_EQ(streams[1].stream, 0);
  EXPECT_TRUE(allocator_.stream_stats(1).empty());
}

using FragmentationTest = ClassicHeapCase;

TEST_F(FragmentationTest, SharesOfWhatIsFreeAreThoseThatServeTheRequest) {
  // 20 MiB in use but for two gaps of 4 MiB, and 30 MiB in a segment of their own.
  std::vector<void*> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(allocator_.allocate(4 * kMega));
  void* whole = allocator_.allocate(30 * kMega);
  allocator_.deallocate(blocks[1]);
  allocator_.deallocate(blocks[3]);
  allocator_.deallocate(whole);

  const FragmentationStats small = allocator_.fragmentation_stats(2 * kMega);
  EXPECT_EQ(small.free_bytes, 38 * kMega);
  EXPECT_EQ(small.free_split_bytes, 8 * kMega);
  EXPECT_EQ(small.free_whole_bytes, 30 * kMega);
  EXPECT_EQ(small.free_blocks, 3U);
  EXPECT_EQ(small.largest_free_block_bytes, 30 * kMega);
  EXPECT_EQ(small.usable_bytes, 38 * kMega);
  EXPECT_DOUBLE_EQ(small.usable_share(), 1.0);
  const FragmentationStats large = allocator_.fragmentation_stats(5 * kMega);
  EXPECT_EQ(large.usable_bytes, 30 * kMega);
  EXPECT_DOUBLE_EQ(large.usable_share(), 30.0 / 38.0);
  EXPECT_EQ(allocator_.fragmentation_stats(31 * kMega).usable_bytes, 0U);
  EXPECT_EQ(allocator_.fragmentation_stats(512).usable_bytes, 0U) << "small requests have segments of their own";
  EXPECT_DOUBLE_EQ(allocator_.fragmentation_stats(512, 1).usable_share(), 0.0);
}

// What expandable segments have free waits for the policy to be on again.
TEST_F(FragmentationTest, PagesAreNotUsableWhileSegmentsDoNotExpand) {
  allocator_.set_options("expandable_segments:True");
  allocator_.deallocate(allocator_.allocate(20 * kMega));
  EXPECT_EQ(allocator_.fragmentation_stats(5 * kMega).usable_bytes, 20 * kMega);
  allocator_.set_options("expandable_segments:False");
  const FragmentationStats stats = allocator_.fragmentation_stats(5 * kMega);
  EXPECT_EQ(stats.usable_bytes, 0U);
  EXPECT_EQ(stats.free_whole_bytes, 20 * kMega);
}

TEST_F(FragmentationTest, PrivatePoolsKeepWhatTheyHaveFree) {
  const MemPool pool(allocator_);
  allocator_.deallocate(pool.allocate(2 * kMega, stream_));
  EXPECT_EQ(allocator_.fragmentation_stats().free_private_bytes, 20 * kMega);
  EXPECT_EQ(allocator_.fragmentation_stats().free_bytes, 0U);
}

TEST_F(HeapFiguresTest, OutsideIsWhatTheDriverHasGivenToOthers) {
  static_cast<void>(allocator_.allocate(2 * kMega));
  CachingAllocator another(options(driver_));
  static_cast<void>(another.allocate(30 * kMega));
  const DeviceMemoryStats memory = allocator_.device_memory_stats();
  EXPECT_EQ(memory.total, 256 * kMega);
  EXPECT_EQ(memory.reserved, 20 * kMega);
  EXPECT_EQ(memory.outside, 30 * kMega);
  EXPECT_EQ(memory.free, 206 * kMega);
}

}  // namespace
}  // namespace cistern
