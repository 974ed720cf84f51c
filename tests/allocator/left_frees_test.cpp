// Frees in pages that are left to their stream's next turn: whoever needs the bytes has them.
#include "allocator/left_frees.h"

#include <cistern/allocator.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "allocator/block.h"
#include "allocator/device_allocator.h"
#include "tests/allocator/heap_of_streams.h"
#include "tests/allocator/paged_fixture.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

TEST(LeftFreesList, AreTakenInTheirOrderAndThenThereAreNone) {
  LeftFrees left;
  std::vector<Block> blocks(LeftFrees::kMost);
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(left.empty());
    for (Block& block : blocks) {
      EXPECT_FALSE(left.is_full());
      left.add(&block);
      EXPECT_FALSE(left.empty());
    }
    EXPECT_TRUE(left.is_full());
    std::vector<Block*> taken;
    left.take([&](Block* block) { taken.push_back(block); });
    ASSERT_EQ(taken.size(), blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(taken[i], &blocks[i]);
  }
}

// Two streams that serve themselves and two threads, so that frees of each are left to its next turn.
class LeftFreesInPages : public Paged {
 protected:
  static constexpr std::size_t kBlock = 4 * kMega;  // whole handles
  // More than are left at a time.
  static constexpr std::size_t kBlocks = 5 * LeftFrees::kMost / 2;

  LeftFreesInPages() { wake(); }
  // Also again: a stream that this thread asked is its own.
  void wake() {
    const auto turns = [this](StreamHandle stream) {
      for (int turn = 0; turn < 100; ++turn)
        for (const std::size_t bytes : {kKibi, 2 * kKibi, 3 * kKibi}) give(take(bytes, stream));
    };
    for (int round = 0; round < 3; ++round) {
      turns(one);
      std::thread([&] { turns(other); }).join();
    }
    static_cast<void>(reserved());  // whose streams they are is looked at with the heap's lock
  }
  [[nodiscard]] std::vector<void*> fill(StreamHandle stream) {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < kBlocks; ++i) blocks.push_back(take(kBlock, stream));
    return blocks;
  }

  const StreamHandle one = driver.create_stream();
  const StreamHandle other = driver.create_stream();
};

TEST_F(LeftFreesInPages, AnotherStreamGetsTheirBytesBeforeMemoryIsCreated) {
  for (const std::size_t freed : {std::size_t{2}, LeftFrees::kMost, LeftFrees::kMost + 1, kBlocks}) {
    wake();
    std::vector<void*> blocks = fill(one);
    const std::int64_t before = reserved();
    for (std::size_t i = 0; i < freed; ++i) give(blocks[i]);
    std::vector<void*> others;
    for (std::size_t i = 0; i < freed; ++i) others.push_back(take(kBlock, other));
    EXPECT_EQ(reserved(), before) << freed << " freed";
    blocks.erase(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(freed));
    give_all(blocks);
    give_all(others);
    judge();
  }
}

TEST_F(LeftFreesInPages, FiguresKnowOfThemAtOnceAndMemoryGoesBack) {
  for (const std::size_t asked_after : {std::size_t{1}, std::size_t{2}, LeftFrees::kMost, LeftFrees::kMost + 1}) {
    wake();
    const std::vector<void*> blocks = fill(one);
    for (std::size_t i = 0; i < kBlocks; ++i) {
      give(blocks[i]);
      if ((i + 1) % asked_after != 0) continue;
      EXPECT_EQ(allocator.memory_stats().allocation.all.current, static_cast<std::int64_t>(kBlocks - i - 1));
    }
    judge();
  }
  give_all(fill(one));
  allocator.empty_cache();
  EXPECT_EQ(reserved(), 0);
}

struct HeapWithLock : DeviceAllocator {
  using DeviceAllocator::DeviceAllocator;
  void take_lock() { const Section section(*this); }
};

// A heap whose streams are looked at.
class LeftFreesOfStreams : public HeapOfStreams<HeapWithLock> {
 protected:
  LeftFreesOfStreams() : HeapOfStreams("oom_dump:off,policy:paged", HistoryOptions::always_on()) {}

  // Whether a free is left, and whether it is after the stream's next hit.
  struct Left {
    bool by_the_free = false;
    bool by_the_hit = false;
  };
  [[nodiscard]] Left leave(const StreamIdentity& stream) {
    const std::uint64_t free = take(4 * kMega, stream);
    const std::uint64_t left = take(4 * kMega, stream);
    const std::uint64_t last = take(kMega, stream);
    give(free);
    heap_.take_lock();  // who has it finds it free, and so does the hit
    StreamHeap& heap = *heap_.find_by_page(left);
    give(left);
    Left is_left{!heap.left_frees.empty()};
    heap.has_served_alone = false;
    const std::uint64_t hit = take(2 * kMega, stream);
    EXPECT_TRUE(heap.has_served_alone) << "a hit";
    is_left.by_the_hit = !heap.left_frees.empty();
    for (const std::uint64_t block : {last, hit}) give(block);
    heap_.check();
    return is_left;
  }
  // The one serves with this thread, the other with one that is over then.
  void serve_apart(const StreamIdentity& one, const StreamIdentity& other) {
    turns(one, 100);
    std::thread([&] { turns(other, 100); }).join();
    turns(one, 100);
    heap_.take_lock();
  }
};

TEST_F(LeftFreesOfStreams, AreCarriedOutByTheNextHit) {
  const StreamIdentity one = make_stream();
  serve_apart(one, make_stream());
  const Left left = leave(one);
  EXPECT_TRUE(left.by_the_free);
  EXPECT_FALSE(left.by_the_hit);
}

// They come to the stream's thread through its ring.
TEST_F(LeftFreesOfStreams, SoAreThoseThatAnotherThreadMade) {
  const StreamIdentity one = make_stream();
  serve_apart(one, make_stream());
  for (int round = 0; round < 20; ++round) {
    std::vector<std::uint64_t> blocks;
    for (std::size_t i = 0; i < LeftFrees::kMost + 4; ++i) blocks.push_back(take(kMega, one));
    StreamHeap* const heap = heap_.find_by_page(blocks.front());
    std::thread([&] {
      for (const std::uint64_t block : blocks) give(block);
    }).join();
    EXPECT_NE(heap->returned.first(), 0U);
    const std::uint64_t next = take(kMega, one);
    EXPECT_TRUE(heap->left_frees.empty());
    EXPECT_EQ(heap->live.size(), 1U);
    give(next);
    heap_.check();
  }
}

// Each of its streams is to see what it did on the others.
TEST_F(LeftFreesOfStreams, AThreadThatCameToServeSeveralLeavesNone) {
  const StreamIdentity one = make_stream();
  const StreamIdentity other = make_stream();
  serve_apart(one, other);
  EXPECT_TRUE(leave(one).by_the_free);
  turns(other, 100);
  heap_.take_lock();
  EXPECT_FALSE(leave(one).by_the_free);
}

TEST_F(LeftFreesOfStreams, AThreadWhoseNextStreamWakesLeavesNone) {
  const StreamIdentity one = make_stream();
  serve_apart(one, make_stream());
  EXPECT_TRUE(leave(one).by_the_free);
  turns(make_stream(), 100);
  heap_.take_lock();
  EXPECT_FALSE(leave(one).by_the_free);
}

TEST_F(LeftFreesOfStreams, AStreamThatServesAloneLeavesNone) {
  const StreamIdentity one = make_stream();
  turns(one, 100);
  EXPECT_FALSE(leave(one).by_the_free);
}

// Then it takes no turns, and who follows its steps would find what was left in their way.
TEST_F(LeftFreesOfStreams, AStreamThatComesToServeAloneLeavesNone) {
  const StreamIdentity one = make_stream();
  const StreamIdentity other = make_stream();
  serve_apart(one, other);
  EXPECT_TRUE(leave(one).by_the_free);
  heap_.end_stream({other, 0, nullptr});
  heap_.take_lock();
  EXPECT_FALSE(leave(one).by_the_free);
}

}  // namespace
}  // namespace cistern
