// Steps with blocks that other streams use are followed, and nobody can tell: a stream that serves itself beside one
// whose every step is looked at, and so carried out.
#include <cistern/allocator.h>
#include <cistern/history.h>
#include <cistern/simulated.h>
#include <cistern/snapshot.h>
#include <cistern/stats.h>

#include <cuda.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/allocator/used_heap.h"
#include "tests/byte_units.h"
#include "tests/property.h"

namespace cistern {
namespace {

class FollowedWaitsTest : public ::testing::TestWithParam<const char*> {
 protected:
  void both(const std::function<void(UsedHeap&)>& step) {
    step(followed_);
    step(plain_);
  }
  void allocate(std::size_t bytes, std::size_t owner = 0) {
    ASSERT_EQ(followed_.allocate(bytes, owner), plain_.allocate(bytes, owner));
  }
  void compare() {
    EXPECT_EQ(followed_.allocator().memory_stats(), plain_.allocator().memory_stats());
    // Requests in paged memory claim several frees that wait at once, in whatever order these came to be the heap's.
    // What several streams did at once has no one order.
    if (GetParam() != std::string("paged") && owners_ == 1) compare_histories();
    both([](UsedHeap& heap) { EXPECT_NO_THROW(heap.allocator().check()); });
  }
  void compare_histories() {
    const auto followed = followed_.told();
    const auto plain = plain_.told();
    ASSERT_EQ(followed.size(), plain.size());
    for (std::size_t i = 0; i < plain.size(); ++i)
      ASSERT_TRUE(followed[i] == plain[i]) << "entry " << i << " of " << plain.size() << ": of " << followed[i].second
                                           << " bytes as followed, else " << plain[i].second;
  }
  // One step of a round.
  void step(std::mt19937_64& random) {
    const std::size_t live = followed_.live();
    const std::uint64_t kind = random() % 16;
    const std::uint64_t which = live == 0 ? 0 : random() % live;
    const std::size_t user = random() % UsedHeap::kStreams;
    const std::size_t owner = random() % owners_;
    if (live < 4 || (kind < 6 && live < 24)) return allocate(500 * (1 + random() % 60) << (random() % 3 * 4), owner);
    if (kind < 10) return both([&](UsedHeap& heap) { heap.free(which); });
    if (kind < 14) return both([&](UsedHeap& heap) { heap.use(which, user); });
    if (kind == 14) return both([&](UsedHeap& heap) { heap.hold_up(user); });
    both([&](UsedHeap& heap) { heap.let_go(user); });
  }
  // Something that is no step of the stream's.
  void detour(std::mt19937_64& random) {
    const std::uint64_t kind = random() % 9;
    const std::size_t which = followed_.live() == 0 ? 0 : random() % followed_.live();
    const std::size_t user = random() % UsedHeap::kStreams;
    if (kind == 5) pass();  // what is done is told before what another thread frees
    both([&](UsedHeap& heap) {
      if (kind == 0) return heap.allocator().empty_cache();
      if (kind == 1) return static_cast<void>(heap.allocator().memory_stats());
      if (kind == 2) return heap.allocator().reset_peak_memory_stats();
      if (kind == 3) return heap.let_go(user);
      if (kind == 4) return heap.hold_up(user);
      if (heap.live() == 0) return;
      if (kind == 5) return heap.free_elsewhere(which);
      if (kind == 6) return heap.use(which, 0);  // mostly its own stream
      if (kind == 7) return heap.free(which);
      heap.use(which, user);
    });
    if (kind != 5) return;
    // Until its stream goes on, or somebody looks, such a block is none of its inactive splits (docs/statistics.md).
    if (owners_ != 1) both([](UsedHeap& heap) { static_cast<void>(heap.allocator().memory_stats()); });
    pass();
  }
  // Requests that complete what is done, and take what another thread freed.
  void pass() {
    for (std::size_t owner = 0; owner < owners_; ++owner) {
      allocate(512, owner);
      both([](UsedHeap& heap) { heap.free(heap.live() - 1); });
    }
  }
  void run(long seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const std::uint64_t round_seed = random();
    const std::uint64_t steps = 8 + random() % 120;
    const std::uint64_t detours = random() % 4;
    for (int round = 0; round < 60; ++round) {
      std::mt19937_64 of_round(round_seed);
      for (std::uint64_t i = 0; i < steps; ++i) {
        if (random() % 2000 < detours) detour(random);
        step(of_round);
        if (HasFatalFailure()) return;
      }
      end_round();
    }
    compare();
  }
  void end_round() {
    both([](UsedHeap& heap) {
      while (heap.live() != 0) heap.free(heap.live() - 1);
      for (std::size_t user = 0; user < UsedHeap::kStreams; ++user) heap.let_go(user);
    });
    pass();
  }

  std::size_t owners_ = 1;
  UsedHeap followed_{GetParam(), false};
  UsedHeap plain_{GetParam(), true};
};

// Where streams have each other's bytes, it shows that somebody looked.
class FollowedWaitsOfStreamsTest : public FollowedWaitsTest {};

TEST_P(FollowedWaitsTest, StepsThatAreFollowedAreTheSteps) {
  for (long seed = 0; seed < scaled_programs(150, 4) && !HasFailure(); ++seed) run(seed);
}

// Each request ends waits of all streams, and so steps of streams that others follow.
TEST_P(FollowedWaitsOfStreamsTest, RequestsOnOtherStreamsEndTheirWaits) {
  for (long seed = 0; seed < scaled_programs(150, 4) && !HasFailure(); ++seed) {
    owners_ = 2 + static_cast<std::size_t>(seed) % 2;
    run(seed);
  }
}

// Everything that may come while steps are followed.
TEST_P(FollowedWaitsTest, WhatComesBetweenTheStepsFindsThemCarriedOut) {
  const auto round = [this] {
    for (const std::size_t bytes : {3000, 5000, 7000, 9000}) allocate(bytes);
    both([](UsedHeap& heap) {
      heap.use(0, 1);
      heap.use(2, 2);
      heap.use(2, 1);
      heap.free(1);
      heap.free(0);
    });
    allocate(4000);
    both([](UsedHeap& heap) {
      heap.free(0);
      heap.free(0);
      heap.free(0);
    });
  };
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    for (std::uint64_t rounds = seed == 0 ? 200 : random() % 20; rounds != 0; --rounds) round();
    for (const std::size_t bytes : {3000, 5000, 7000, 9000}) allocate(bytes);
    both([](UsedHeap& heap) { heap.use(0, 1); });
    if (seed % 2 == 0)
      both([](UsedHeap& heap) {
        heap.use(2, 2);
        heap.free(0);
      });
    detour(random);
    end_round();
    if (seed % 10 == 0) compare();
    if (HasFailure()) return;
  }
  compare();
}

// That a round came again shows in the host memory for its steps alone. `alone`: the block that others use, in turn,
// stands until it comes back.
void expect_known_round(const std::string& policy, bool alone) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's allocator does not tell what is in use";
  UsedHeap heap(policy, false);
  HistoryOptions off;
  off.enabled = HistoryEnabled::none;
  heap.allocator().record_history(off);
  const auto rounds = [&](int count) {
    for (; count != 0; --count) {
      heap.allocate(3 * kMega);
      heap.use(0, alone ? 1 + static_cast<std::size_t>(count) % 2 : 1);
      if (!alone) {
        heap.allocate(5 * kMega);
        heap.use(1, 2);
      }
      while (heap.live() != 0) heap.free(0);
    }
  };
  const auto in_use = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<std::ptrdiff_t>(info.uordblks + info.hblkhd);
  };
  rounds(40);  // less than is looked at
  const std::ptrdiff_t before = in_use();
  rounds(2000);
  EXPECT_GT(in_use() - before, 8 * 1024);
}

TEST(FollowedWaits, ARoundWithUsesIsKnown) { expect_known_round("classic", false); }
TEST(FollowedWaits, ARoundOfOneBlockThatTwoStreamsUseIsKnown) { expect_known_round("classic", true); }
TEST(FollowedWaits, ARoundWithUsesInPagesIsKnown) { expect_known_round("paged", false); }

INSTANTIATE_TEST_SUITE_P(Each, FollowedWaitsOfStreamsTest,
                         ::testing::Values("classic", "expandable", "paged,stream_hand_over:never"));
INSTANTIATE_TEST_SUITE_P(Each, FollowedWaitsTest,
                         ::testing::Values("classic", "expandable", "paged", "paged,stream_hand_over:never"));

}  // namespace
}  // namespace cistern
