// What the history tells of expandable segments: pages that come and go, and whose stack they have.

#include <cistern/allocator.h>
#include <cistern/error.h>
#include <cistern/simulated.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/byte_units.h"
#include "tests/history/trace_replay.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

constexpr std::size_t kPage = 20 * kMega;

// Functions to be found in stacks. The statements behind the calls keep them from being jumps, and from
// being one function.
[[gnu::noinline]] void* request_that_maps(CachingAllocator& allocator, std::size_t bytes) {
  void* block = allocator.allocate(bytes);
  asm volatile("");
  return block;
}
[[gnu::noinline]] void* request_that_grows(CachingAllocator& allocator, std::size_t bytes) {
  void* block = allocator.allocate(bytes);
  asm volatile("nop");
  return block;
}
[[gnu::noinline]] void emptying(CachingAllocator& allocator) {
  allocator.empty_cache();
  asm volatile("");
}

class ExpandableHistory : public ::testing::Test {
 protected:
  [[nodiscard]] void* allocate(std::size_t bytes) { return allocator.allocate(bytes); }
  void free(void* block) { allocator.deallocate(block); }
  // The entries since the last call, which lead to what the snapshot shows.
  std::vector<TraceEntry> news() {
    const Snapshot snapshot = allocator.snapshot();
    EXPECT_EQ(TraceReplay(snapshot.device_traces.at(0)).difference_from(snapshot), "");
    std::vector<TraceEntry> entries;
    for (std::size_t i = seen_; i < snapshot.device_traces[0].size(); ++i)
      if (snapshot.device_traces[0][i].action != TraceAction::snapshot) entries.push_back(snapshot.device_traces[0][i]);
    seen_ = snapshot.device_traces[0].size();
    return entries;
  }
  std::vector<std::string> new_actions() { return actions_and_sizes(news()); }
  // The function of ours that a stack came from; "none" without a stack.
  static std::string origin(const Snapshot& snapshot, StackIndex stack) {
    if (stack == kNoStack) return "none";
    for (const FrameInfo& frame : snapshot.stacks.at(static_cast<std::size_t>(stack)))
      for (const char* name : {"request_that_maps", "request_that_grows", "emptying"})
        if (frame.name.find(name) != std::string::npos) return name;
    return "unknown";
  }

  SimulatedDriver driver{SimulatedOptions{.capacity_bytes = 400 * kMega, .backing = Backing::none}};
  CachingAllocator allocator{
      {.driver = &driver.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:expandable")}};

 private:
  std::size_t seen_ = 0;
};

TEST_F(ExpandableHistory, AMissHasItsPagesFirst) {
  void* small = allocate(1000);
  const std::vector<TraceEntry> entries = news();
  EXPECT_THAT(actions_and_sizes(entries), ElementsAre("segment_map 2097152", "alloc 1000"));
  EXPECT_EQ(entries[0].address, reinterpret_cast<std::uintptr_t>(small));
  static_cast<void>(allocate(30 * kMega));
  EXPECT_THAT(new_actions(), ElementsAre("segment_map 41943040", "alloc 31457280"));
  static_cast<void>(allocate(30 * kMega));
  EXPECT_THAT(new_actions(), ElementsAre("segment_map 20971520", "alloc 31457280")) << "10 MiB were free";
}

TEST_F(ExpandableHistory, EachMapOfARequestIsAnEntry) {
  std::vector<void*> blocks(4);
  for (void*& block : blocks) block = allocate(kPage);
  free(blocks[0]);
  free(blocks[2]);
  allocator.empty_cache();
  free(blocks[1]);
  static_cast<void>(news());
  EXPECT_EQ(allocate(3 * kPage), blocks[0]);
  EXPECT_THAT(new_actions(), ElementsAre("segment_map 20971520", "segment_map 20971520", "alloc 62914560"));
}

TEST_F(ExpandableHistory, EmptyCacheCompletesPendingFreesAndThenUnmapsLargeBlocksBySizeAndSmallOnes) {
  void* small = allocate(1000);
  std::vector<void*> blocks;
  for (const std::size_t pages : {2, 1, 1, 1, 3, 1}) blocks.push_back(allocate(pages * kPage));
  const StreamHandle other = driver.create_stream();
  driver.occupy(other, 1ms);
  allocator.deallocate(blocks[2], other);
  for (void* block : {small, blocks[0], blocks[4]}) free(block);
  static_cast<void>(news());
  allocator.empty_cache();
  EXPECT_THAT(new_actions(), ElementsAre("free_completed 20971520", "segment_unmap 20971520", "segment_unmap 41943040",
                                         "segment_unmap 62914560", "segment_unmap 2097152"));
}

TEST_F(ExpandableHistory, AMapThatFailsIsNotToldOf) {
  static_cast<void>(allocate(5 * kPage));
  static_cast<void>(news());
  EXPECT_THROW(static_cast<void>(allocate(16 * kPage)), OutOfMemoryError);
  EXPECT_THAT(new_actions(), ElementsAre("oom 335544320"));
}

TEST_F(ExpandableHistory, AnUnmapThatFailsIsToldOfAsFarAsItWent) {
  free(allocate(3 * kPage));
  static_cast<void>(news());
  driver.fail_call("cuMemUnmap", 2, 999);
  EXPECT_THROW(allocator.empty_cache(), DriverError);
  EXPECT_THAT(new_actions(), ElementsAre("segment_unmap 20971520"));
  allocator.empty_cache();
  EXPECT_THAT(new_actions(), ElementsAre("segment_unmap 41943040"));
}

TEST_F(ExpandableHistory, PagesOfAPrivatePoolNameIt) {
  allocator.begin_allocate_to_pool(0, {0, 3}, PoolFilter::every_stream());
  void* block = allocate(1000);
  allocator.end_allocate_to_pool(0, {0, 3});
  free(block);
  allocator.release_pool(0, {0, 3});
  allocator.empty_cache();
  const std::vector<TraceEntry> entries = news();
  ASSERT_THAT(actions_and_sizes(entries), ElementsAre("segment_map 2097152", "alloc 1000", "free_requested 1000",
                                                      "free_completed 1000", "segment_unmap 2097152"));
  for (const TraceEntry& entry : entries)
    EXPECT_EQ(entry.pool_id, (std::pair<std::int64_t, std::int64_t>{0, 3})) << to_string(entry.action);
}

TEST_F(ExpandableHistory, EntriesOfPagesCarryTheStackOfTheRequest) {
  allocator.record_history({});
  free(request_that_maps(allocator, kPage));
  emptying(allocator);
  const Snapshot snapshot = allocator.snapshot();
  const std::vector<TraceEntry>& entries = snapshot.device_traces.at(0);
  EXPECT_EQ(entries.front().action, TraceAction::segment_map);
  EXPECT_EQ(origin(snapshot, entries.front().stack), "request_that_maps");
  EXPECT_EQ(entries.back().action, TraceAction::segment_unmap);
  EXPECT_EQ(origin(snapshot, entries.back().stack), "emptying");
}

TEST_F(ExpandableHistory, ASegmentHasTheStackOfItsLowestPages) {
  allocator.record_history({.context = HistoryContext::state});
  std::vector<void*> blocks{request_that_maps(allocator, kPage)};
  for (int i = 0; i < 4; ++i) blocks.push_back(request_that_grows(allocator, kPage));
  Snapshot snapshot = allocator.snapshot();
  ASSERT_EQ(snapshot.segments.size(), 1U);
  EXPECT_EQ(origin(snapshot, snapshot.segments[0].stack), "request_that_maps");
  free(blocks[0]);
  free(blocks[3]);
  allocator.empty_cache();
  // One block before two.
  static_cast<void>(request_that_grows(allocator, kPage));
  snapshot = allocator.snapshot();
  ASSERT_EQ(snapshot.segments.size(), 2U);
  EXPECT_EQ(origin(snapshot, snapshot.segments[0].stack), "request_that_grows");
  EXPECT_EQ(origin(snapshot, snapshot.segments[1].stack), "request_that_maps") << "it was parted from the lowest";
}

// From each depth with a stack of its own: pages that come, join, part and go.
[[gnu::noinline]] void come_and_go(int depth, CachingAllocator& allocator) {
  if (depth > 0) {
    come_and_go(depth - 1, allocator);
    asm volatile("");
    return;
  }
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i)
    blocks.push_back(i % 2 == 0 ? request_that_maps(allocator, kPage) : request_that_grows(allocator, kPage));
  allocator.deallocate(blocks[1]);
  emptying(allocator);
  allocator.deallocate(blocks[0]);
  blocks[0] = request_that_maps(allocator, 2 * kPage);
  for (const int i : {0, 2, 3}) allocator.deallocate(blocks[static_cast<std::size_t>(i)]);
  emptying(allocator);
}

TEST_F(ExpandableHistory, StacksOfPagesThatWentMakeRoomForOthers) {
  HistoryOptions options;
  options.max_entries = 1;
  options.max_stack_bytes = 8000;
  options.clear_history = true;
  allocator.record_history(options);
  for (int depth = 0; depth < 60; ++depth) {
    come_and_go(depth, allocator);
    ASSERT_EQ(allocator.history_info().stacks_lost, 0U) << depth;
  }
  EXPECT_TRUE(allocator.snapshot().segments.empty());
  EXPECT_LE(allocator.snapshot().stacks.size(), 1U) << "the last entry's";
}

TEST_F(ExpandableHistory, StacksOfSegmentsAreGoneWhenHistoryIsTurnedOff) {
  allocator.record_history({});
  std::vector<void*> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(request_that_maps(allocator, kPage));
  free(blocks[1]);
  allocator.empty_cache();
  allocator.record_history({.enabled = HistoryEnabled::none});
  const Snapshot snapshot = allocator.snapshot();
  ASSERT_EQ(snapshot.segments.size(), 2U);
  for (const SegmentInfo& segment : snapshot.segments) EXPECT_EQ(segment.stack, kNoStack);
  EXPECT_TRUE(snapshot.stacks.empty());
}

}  // namespace
}  // namespace cistern
