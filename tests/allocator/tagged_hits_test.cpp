// Blocks with tags that streams hand out and have back by themselves: in the figures of tags, and in the history.
#include <cistern/history.h>
#include <cistern/scope.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <string>
#include <thread>

#include "tests/allocator/stream_hits_fixture.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

class StreamHitsWithTagsTest : public StreamHitsTest {};

// Each entry of a block has its tag, whether one stream serves or several.
TEST_P(StreamHitsWithTagsTest, TheHistoryHasTheTagsOfHits) {
  for (const bool is_alone : {true, false}) {
    for (const StreamHandle stream : {first_, second_}) {
      if (stream == second_ && is_alone) continue;
      const TagScope scope(stream == first_ ? "of first" : "of second");
      for (int i = 0; i < 5; ++i) {
        void* const kept = allocator_.allocate(2 * kKibi, stream);
        allocator_.deallocate(allocator_.allocate(kKibi, stream));
        allocator_.deallocate(kept);
      }
    }
    const Snapshot snapshot = allocator_.snapshot();
    for (const TraceEntry& entry : snapshot.device_traces.at(0)) {
      if (entry.action != TraceAction::alloc && entry.action != TraceAction::free_requested &&
          entry.action != TraceAction::free_completed)
        continue;
      const bool is_of_first = entry.stream == static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(first_));
      ASSERT_NE(entry.tag, kNoTag);
      EXPECT_EQ(snapshot.tags.at(static_cast<std::size_t>(entry.tag)), is_of_first ? "of first" : "of second");
      EXPECT_TRUE(entry.size == std::int64_t{kKibi} || entry.size == std::int64_t{2 * kKibi});
    }
  }
}

// Two threads with a stream and a tag each, and a tag that both use, free each other's blocks; a third one looks.
TEST_P(StreamHitsWithTagsTest, TagsOfThreadsAddUp) {
  constexpr int kRounds = 300;
  std::array<std::array<std::atomic<void*>, 16>, 2> handed{};
  const auto work = [&](std::size_t self) {
    std::mt19937 random(static_cast<unsigned>(self) + 20261201);
    const StreamHandle stream = self == 0 ? first_ : second_;
    for (int round = 0; round < kRounds; ++round) {
      const TagScope scope(random() % 2 == 0 ? "both" : self == 0 ? "one" : "other");
      void* const block = allocator_.allocate((random() % 40 + 1) * 512, stream);
      allocator_.deallocate(allocator_.allocate(kKibi, stream));
      // What lies there is of this thread; what lies at the other's is of that one.
      allocator_.deallocate(handed[self][random() % 16].exchange(block));
      allocator_.deallocate(handed[1 - self][random() % 16].exchange(nullptr));
    }
  };
  {
    const TagScope scope("both");
    for (const StreamHandle stream : {first_, second_}) wake(stream);
  }
  std::thread one(work, 0);
  std::thread other(work, 1);
  for (int look = 0; look < 50; ++look) {
    std::int64_t live = 0;
    for (const TagStats& figures : allocator_.tag_stats()) live += figures.allocated_bytes.current;
    EXPECT_GE(live, 0);
    std::this_thread::yield();
  }
  one.join();
  other.join();
  for (auto& blocks : handed)
    for (std::atomic<void*>& block : blocks) allocator_.deallocate(block.exchange(nullptr));
  const MemoryStats all = stats();
  std::int64_t allocated = 0;
  std::int64_t at_peak = 0;
  for (const TagStats& figures : allocator_.tag_stats()) {
    EXPECT_EQ(figures.allocated_bytes.current, 0) << figures.tag;
    EXPECT_EQ(figures.allocation.current, 0) << figures.tag;
    allocated += figures.allocation.allocated;
    at_peak += figures.at_device_peak_bytes;
  }
  EXPECT_EQ(allocated, all.allocation.all.allocated);
  EXPECT_EQ(at_peak, all.allocated_bytes.all.peak);
  expect_nothing_live();
}

// Uses and what waits for them are told by who has the heap's lock.
TEST_P(StreamHitsWithTagsTest, ABlockWithATagThatAnotherStreamUsedIsCountedWhenItIsFreed) {
  const TagScope scope("used");
  for (int i = 0; i < 5; ++i) {
    void* const block = allocator_.allocate(kKibi, first_);
    allocator_.record_stream(block, second_);
    allocator_.deallocate(block);
    if (i % 2 == 0) allocator_.deallocate(allocator_.allocate(2 * kKibi, first_));  // finds the event done
    for (const TagStats& figures : allocator_.tag_stats()) {
      EXPECT_EQ(figures.allocated_bytes.current, 0);
    }
  }
  wake(first_);
  expect_nothing_live();
}

INSTANTIATE_TEST_SUITE_P(, StreamHitsWithTagsTest,
                         ::testing::Values(Policy::classic, Policy::expandable, Policy::paged),
                         [](const auto& policy) { return std::string(to_string(policy.param)); });

}  // namespace
}  // namespace cistern
