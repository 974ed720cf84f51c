// Scopes and tags on an allocator: what they see of memory that moves between streams, pools and
// threads.

#include <cistern/allocator.h>
#include <cistern/scope.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/allocator/classic_heap_case.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

class ScopeTest : public ClassicHeapCase {
 protected:
  // The figures of a tag; all zero where there are none.
  TagStats tag(const std::string& name, int device = 0) const {
    for (const TagStats& stats : allocator_.tag_stats(device))
      if (stats.tag == name) return stats;
    return {};
  }
};

using PeakScopeTest = ScopeTest;

TEST_F(PeakScopeTest, HasTheFiguresOfItsTime) {
  void* before = allocator_.allocate(2 * kMega);
  PeakScope scope(allocator_);
  void* inside = allocator_.allocate(3 * kMega);
  allocator_.deallocate(inside);
  allocator_.deallocate(before);

  const MemoryStats stats = scope.stats();
  EXPECT_EQ(stats.allocated_bytes.all, (Stat{0, 5 * kSignedMega, 3 * kSignedMega, 5 * kSignedMega}));
  EXPECT_EQ(stats.allocation.all, (Stat{0, 2, 1, 2}));
  EXPECT_EQ(stats.reserved_bytes.all, (Stat{20 * kSignedMega, 20 * kSignedMega, 0, 0}));
  EXPECT_EQ(scope.peak_bytes(), 5 * kSignedMega);
  EXPECT_EQ(scope.start_bytes(), 2 * kSignedMega);
}

TEST_F(PeakScopeTest, StoppedItsFiguresStay) {
  PeakScope scope(allocator_);
  void* block = allocator_.allocate(2 * kMega);
  EXPECT_TRUE(scope.is_open());
  scope.stop();
  EXPECT_FALSE(scope.is_open());
  allocator_.deallocate(block);
  static_cast<void>(allocator_.allocate(30 * kMega));
  scope.stop();
  EXPECT_EQ(scope.stats().allocated_bytes.all, (Stat{2 * kSignedMega, 2 * kSignedMega, 2 * kSignedMega, 0}));
}

TEST_F(PeakScopeTest, ResetsOfTheDeviceDoNotReachIt) {
  const PeakScope scope(allocator_);
  allocator_.deallocate(allocator_.allocate(8 * kMega));
  allocator_.reset_peak_memory_stats();
  allocator_.reset_accumulated_memory_stats();
  EXPECT_EQ(allocator_.memory_stats().allocated_bytes.all, (Stat{0, 0, 0, 0}));
  EXPECT_EQ(scope.stats().allocated_bytes.all, (Stat{0, 8 * kSignedMega, 8 * kSignedMega, 8 * kSignedMega}));
  EXPECT_EQ(scope.stats().num_device_alloc, 1);
}

TEST_F(PeakScopeTest, IsOpenedByOneThreadAndStoppedByAnother) {
  std::optional<PeakScope> scope;
  std::thread([&] { scope.emplace(allocator_); }).join();
  static_cast<void>(allocator_.allocate(kMega));
  std::thread([&] { scope->stop(); }).join();
  static_cast<void>(allocator_.allocate(kMega));
  EXPECT_EQ(scope->stats().allocation.all, (Stat{1, 1, 1, 0}));
}

TEST_F(PeakScopeTest, MovedItIsTheSameScope) {
  PeakScope first(allocator_);
  static_cast<void>(allocator_.allocate(kMega));
  PeakScope second = std::move(first);
  static_cast<void>(allocator_.allocate(kMega));
  EXPECT_EQ(second.stats().allocation.all.allocated, 2);
  EXPECT_FALSE(first.is_open());                                    // NOLINT(bugprone-use-after-move)
  EXPECT_THROW(static_cast<void>(first.stats()), InvalidArgument);  // NOLINT(bugprone-use-after-move)
}

TEST_F(PeakScopeTest, IsOfItsDeviceAlone) {
  const PeakScope scope(allocator_, 1);
  static_cast<void>(allocator_.allocate(kMega, nullptr, 0));
  EXPECT_EQ(scope.stats().allocation.all.allocated, 0);
  EXPECT_EQ(scope.stats(1).allocation.all.allocated, 0);
  EXPECT_THROW(static_cast<void>(scope.stats(0)), InvalidArgument);
  EXPECT_THROW(PeakScope(allocator_, 2), InvalidArgument);
  EXPECT_THROW(PeakScope(allocator_, -1), InvalidArgument) << "all devices are asked for by name";
}

TEST_F(PeakScopeTest, OfAllDevicesSeesThoseThatAreUsedLater) {
  static_cast<void>(allocator_.allocate(kMega, nullptr, 0));
  PeakScope scope = PeakScope::of_all_devices(allocator_);
  EXPECT_EQ(scope.stats(1).allocation.all.current, 0);
  EXPECT_EQ(scope.stats(1).max_split_size, -1);
  void* block = allocator_.allocate(2 * kMega, nullptr, 1);
  static_cast<void>(allocator_.allocate(kMega, nullptr, 0));
  EXPECT_EQ(scope.stats(0).allocated_bytes.all, (Stat{2 * kSignedMega, 2 * kSignedMega, kSignedMega, 0}));
  EXPECT_EQ(scope.peak_bytes(1), 2 * kSignedMega);
  EXPECT_EQ(scope.start_bytes(1), 0);
  scope.stop();
  allocator_.deallocate(block);
  EXPECT_EQ(scope.stats(1).allocated_bytes.all, (Stat{2 * kSignedMega, 2 * kSignedMega, 2 * kSignedMega, 0}));
  EXPECT_THROW(static_cast<void>(scope.stats(2)), InvalidArgument);
}

TEST_F(PeakScopeTest, TheEndOfTheAllocatorStopsIt) {
  std::optional<CachingAllocator> allocator;
  allocator.emplace(options(driver_));
  const PeakScope scope(*allocator);
  const PeakScope all = PeakScope::of_all_devices(*allocator);
  static_cast<void>(allocator->allocate(kMega));
  allocator.reset();
  EXPECT_FALSE(scope.is_open());
  EXPECT_EQ(scope.stats().allocated_bytes.all, (Stat{kSignedMega, kSignedMega, kSignedMega, 0}));
  EXPECT_EQ(all.peak_bytes(0), kSignedMega);
}

using TagTest = ScopeTest;

TEST_F(TagTest, ABlockCountsForTheInnermostTagUntilItIsFreed) {
  void* weights = nullptr;
  void* state = nullptr;
  {
    const TagScope model("model");
    weights = allocator_.allocate(2 * kMega);
    const TagScope optimizer("optimizer");
    state = allocator_.allocate(3 * kMega);
  }
  void* nobodys = allocator_.allocate(4 * kMega);
  EXPECT_EQ(tag("model").allocated_bytes, (Stat{2 * kSignedMega, 2 * kSignedMega, 2 * kSignedMega, 0}));
  EXPECT_EQ(tag("optimizer").allocation, (Stat{1, 1, 1, 0}));
  EXPECT_EQ(tag("").allocated_bytes, (Stat{4 * kSignedMega, 4 * kSignedMega, 4 * kSignedMega, 0}));
  std::thread([&] {
    const TagScope whose("another's");
    allocator_.deallocate(weights);
  }).join();
  EXPECT_EQ(tag("model").allocated_bytes, (Stat{0, 2 * kSignedMega, 2 * kSignedMega, 2 * kSignedMega}));
  EXPECT_EQ(tag("another's").allocation, Stat{}) << "who frees does not matter";
  allocator_.deallocate(state);
  allocator_.deallocate(nobodys);
}

TEST_F(TagTest, EachDeviceHasFiguresOfItsOwn) {
  const TagScope scope("both");
  static_cast<void>(allocator_.allocate(kMega, nullptr, 0));
  static_cast<void>(allocator_.allocate(2 * kMega, nullptr, 1));
  EXPECT_EQ(tag("both", 0).allocated_bytes.current, kSignedMega);
  EXPECT_EQ(tag("both", 1).allocated_bytes.current, 2 * kSignedMega);
}

TEST_F(TagTest, TagsAreListedByNameAndTheUntaggedFirst) {
  for (const char* name : {"zebra", "ant", "mole"}) {
    const TagScope scope(name);
    static_cast<void>(allocator_.allocate(kMega));
  }
  std::vector<std::string> names;
  for (const TagStats& stats : allocator_.tag_stats()) names.push_back(stats.tag);
  EXPECT_EQ(names, (std::vector<std::string>{"", "ant", "mole", "zebra"}));
  EXPECT_EQ(allocator_.tag_stats(1).size(), 1U);
}

TEST_F(TagTest, AFailedRequestLeavesNoTrace) {
  const TagScope scope("unlucky");
  EXPECT_THROW(static_cast<void>(allocator_.allocate(300 * kMega)), OutOfMemoryError);
  EXPECT_EQ(allocator_.tag_stats().size(), 1U);
}

TEST_F(TagTest, ABlockThatOthersAwaitIsNoLongerItsTags) {
  const TagScope scope("shared");
  void* block = allocator_.allocate(2 * kMega, stream_);
  driver_.occupy(other_, 1ms);
  allocator_.record_stream(block, other_);
  allocator_.deallocate(block);
  EXPECT_EQ(tag("shared").allocated_bytes, (Stat{0, 2 * kSignedMega, 2 * kSignedMega, 2 * kSignedMega}));
}

TEST_F(TagTest, TheSnapshotNamesTheTagsOfBlocksInUse) {
  static_cast<void>(allocator_.allocate(512));
  {
    const TagScope scope("named");
    static_cast<void>(allocator_.allocate(512));
  }
  const Snapshot snapshot = allocator_.snapshot();
  const std::vector<BlockInfo>& blocks = snapshot.segments.at(0).blocks;
  ASSERT_EQ(blocks.size(), 3U);
  EXPECT_EQ(blocks[0].tag, kNoTag);
  ASSERT_NE(blocks[1].tag, kNoTag);
  EXPECT_EQ(snapshot.tags.at(static_cast<std::size_t>(blocks[1].tag)), "named");
  EXPECT_EQ(blocks[2].tag, kNoTag) << "free";
}

TEST_F(TagTest, BlocksOfARestoredCheckpointHaveTheirTagsAgain) {
  const MemPool pool(allocator_);
  void* block = nullptr;
  {
    const TagScope scope("graph");
    block = pool.allocate(2 * kMega, stream_);
  }
  const PoolCheckpoint checkpoint = allocator_.checkpoint_pool(0, pool.id());
  allocator_.deallocate(block);
  const TagScope scope("restorer");
  static_cast<void>(allocator_.restore_pool(0, checkpoint));
  EXPECT_EQ(tag("graph").allocated_bytes.current, 2 * kSignedMega);
  EXPECT_EQ(tag("restorer").allocated_bytes.current, 0);
}

TEST_F(TagTest, BlocksOfAPoolWithoutAUseKeepTheirTags) {
  std::optional<MemPool> pool(allocator_);
  void* block = nullptr;
  {
    const TagScope scope("orphan");
    block = pool->allocate(2 * kMega, stream_);
  }
  pool.reset();
  EXPECT_EQ(tag("orphan").allocated_bytes.current, 2 * kSignedMega);
  allocator_.deallocate(block);
  EXPECT_EQ(tag("orphan").allocated_bytes.current, 0);
}

// Scopes come and go and figures are read while others allocate: nothing is lost or counted twice.
TEST_F(ScopeTest, ManyThreadsAtOnceAddUp) {
  constexpr int kThreads = 4;
  constexpr int kBlocks = 300;
  const PeakScope whole(allocator_);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([this, t] {
      const TagScope scope("thread " + std::to_string(t));
      std::vector<void*> live;
      for (int i = 0; i < kBlocks; ++i) {
        const PeakScope inner(allocator_);
        live.push_back(allocator_.allocate(512 * static_cast<std::size_t>(1 + i % 50)));
        EXPECT_GE(inner.stats().allocation.all.allocated, 1);
        if (i % 3 == 0) continue;
        allocator_.deallocate(live.back());
        live.pop_back();
      }
      EXPECT_EQ(tag("thread " + std::to_string(t)).allocation.current, kBlocks / 3);
      for (void* block : live) allocator_.deallocate(block);
    });
  for (int i = 0; i < 100; ++i) {
    allocator_.check();
    static_cast<void>(allocator_.memory_report());
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(whole.stats().allocation.all.allocated, kThreads * kBlocks);
  EXPECT_EQ(whole.stats().allocation.all.freed, kThreads * kBlocks);
  for (int t = 0; t < kThreads; ++t) EXPECT_EQ(tag("thread " + std::to_string(t)).allocation.freed, kBlocks);
}

}  // namespace
}  // namespace cistern
