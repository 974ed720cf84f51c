// Programs of loops in loops are followed whole, whatever part of them was found first: the class alone, over a plain
// heap.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "allocator/recurrence.h"
#include "tests/loop_program.h"
#include "tests/property.h"
#include "tests/recurrence_heap.h"

namespace cistern {
namespace {

// What of the steps is followed from now on.
class Share {
 public:
  explicit Share(const FollowedHeap& heap) : heap_(heap), followed_(heap.followed()), told_(heap.told()) {}
  [[nodiscard]] double now() const {
    return static_cast<double>(heap_.followed() - followed_) / static_cast<double>(heap_.told() - told_);
  }

 private:
  const FollowedHeap& heap_;
  std::int64_t followed_;
  std::int64_t told_;
};

// Passes the requests on; before so many of 1,000 another block comes and goes that is not the program's.
class WithDetours {
 public:
  WithDetours(FollowedHeap& heap, std::uint64_t seed, std::uint64_t detours)
      : heap_(heap), random_(seed), detours_(detours) {}

  std::uint64_t allocate(std::uint64_t bytes) {
    if (random_() % 1000 < detours_) heap_.free(heap_.allocate(500 * (1 + random_() % 90)));
    return heap_.allocate(bytes);
  }
  void free(std::uint64_t address) { heap_.free(address); }
  void look(bool something_else_happens) { heap_.look(something_else_happens); }

 private:
  FollowedHeap& heap_;
  std::mt19937_64 random_;
  std::uint64_t detours_;
};

// The mean share of programs, of four passes after 60,000 steps.
double mean_share(long programs, std::uint64_t detours) {
  double sum = 0;
  long count = 0;
  for (std::uint64_t seed = 0; count < programs; ++seed) {
    FollowedHeap followed;
    WithDetours heap(followed, seed, detours);
    LoopProgram program(heap, seed);
    program.run(1, 2, 0);
    const std::int64_t round = followed.told();
    if (round < 200 || round > 20000) continue;
    program.run_again(static_cast<int>(60000 / round) + 14, 2);
    const Share share(followed);
    program.run_again(4, 2);
    followed.look();
    sum += share.now();
    ++count;
  }
  return sum / static_cast<double>(count);
}

TEST(RoundsWithinRoundsTest, AreFollowedWhole) { EXPECT_GT(mean_share(scaled_programs(200), 0), 0.995); }

TEST(RoundsWithinRoundsTest, AreFollowedBetweenDetours) {
  EXPECT_GT(mean_share(scaled_programs(200), 5), 0.985);
  EXPECT_GT(mean_share(scaled_programs(200), 20), 0.96);
}

void round_of(FollowedHeap& heap, std::uint64_t detour) {
  std::vector<std::uint64_t> blocks;
  for (std::uint64_t i = 0; i < 40; ++i) {
    if (i + 1 == detour) heap.free(heap.allocate(77777));
    blocks.push_back(heap.allocate(500 * (1 + i * 7 % 23)));
  }
  for (const std::uint64_t block : blocks) heap.free(block);
}

TEST(RoundsWithinRoundsTest, WhatComesBesideEachRoundBecomesPartOfIt) {
  for (const std::uint64_t detour : {1, 17, 40}) {
    SCOPED_TRACE(detour);
    FollowedHeap heap;
    for (int times = 0; times < 30; ++times) round_of(heap, 0);
    const Share before(heap);
    for (int times = 0; times < 10; ++times) round_of(heap, 0);
    EXPECT_EQ(before.now(), 1);
    for (int times = 0; times < 10; ++times) round_of(heap, detour);
    const Share with(heap);
    for (int times = 0; times < 10; ++times) round_of(heap, detour);
    EXPECT_EQ(with.now(), 1);
    for (int times = 0; times < 10; ++times) round_of(heap, 0);
    const Share after(heap);
    for (int times = 0; times < 10; ++times) round_of(heap, 0);
    EXPECT_EQ(after.now(), 1);
    heap.look();
  }
}

TEST(RoundsWithinRoundsTest, WhatComesInPlaceOfARoundIsFollowedSoon) {
  FollowedHeap heap;
  for (int times = 0; times < 100; ++times) round_of(heap, 0);
  const auto other_round = [&heap] {
    std::vector<std::uint64_t> blocks{heap.allocate(77777)};
    for (std::uint64_t i = 0; i < 600; ++i) blocks.push_back(heap.allocate(500 * (100 + i)));
    for (const std::uint64_t block : blocks) heap.free(block);
  };
  const std::uint64_t kept = heap.allocate(500);  // or the round could be gone on with
  for (int times = 0; times < 5; ++times) other_round();
  const Share share(heap);
  other_round();
  EXPECT_EQ(share.now(), 1);
  heap.free(kept);
  heap.look();
}

// A round that is gone on with after each detour is none that the log was asked for.
TEST(RoundsWithinRoundsTest, AnotherRoundIsFollowedSoonAfterManyDetours) {
  FollowedHeap heap;
  for (int times = 0; times < 30; ++times) round_of(heap, 0);
  std::mt19937_64 random(4);
  for (int times = 0; times < 100; ++times) {
    std::vector<std::uint64_t> blocks;
    for (std::uint64_t i = 0; i < 80; ++i) {
      if (i % 5 == 2) heap.free(heap.allocate(500 * (200 + random() % 1000)));
      if (i < 40)
        blocks.push_back(heap.allocate(500 * (1 + i * 7 % 23)));
      else
        heap.free(blocks[i - 40]);
    }
  }
  const std::uint64_t kept = heap.allocate(500);
  for (int times = 0; times < 12; ++times) round_of(heap, 0);
  const Share share(heap);
  for (int times = 0; times < 5; ++times) round_of(heap, 0);
  EXPECT_EQ(share.now(), 1);
  heap.free(kept);
  heap.look();
}

// Blocks that come and go in turn beside one that stays: each leads back to where it was, and none is like another one.
void flat_round(FollowedHeap& heap, std::uint64_t blocks) {
  const std::uint64_t kept = heap.allocate(9000);
  std::mt19937_64 random(3);
  for (std::uint64_t i = 0; i < blocks; ++i) heap.free(heap.allocate(500 * (1 + random() % 300)));
  heap.free(kept);
}

TEST(RoundsWithinRoundsTest, ALongRoundWhoseStatesAllComeAgainAtOnceIsFollowed) {
  FollowedHeap heap;
  for (int times = 0; times < 12; ++times) flat_round(heap, 30000);
  const Share share(heap);
  flat_round(heap, 30000);
  EXPECT_EQ(share.now(), 1);
  // Who looks is told of what was followed, and it is none of a longer one.
  const std::size_t room = heap.room();
  heap.look(false);
  for (int times = 0; times < 2; ++times) flat_round(heap, 30000);
  EXPECT_EQ(heap.room(), room);
}

TEST(RoundsWithinRoundsTest, RoomThatWasRefusedIsAskedForAgainSomeTime) {
  FollowedHeap heap(512);
  for (int times = 0; times < 10; ++times) flat_round(heap, 2500);
  EXPECT_EQ(heap.room(), 512U);
  heap.allow(std::size_t{1} << 18);
  for (int times = 0; times < 300; ++times) flat_round(heap, 2500);
  const Share share(heap);
  flat_round(heap, 2500);
  EXPECT_EQ(share.now(), 1);
}

TEST(RoundsWithinRoundsTest, WhatComesNextIsNotGuessedAgainAndAgain) {
  FollowedHeap heap;
  std::mt19937_64 random(9);
  constexpr unsigned kTimes = 20000;
  for (unsigned times = 0; times < kTimes; ++times) {
    const std::uint64_t first = heap.allocate(500 * (1 + random() % 4));
    const std::uint64_t second = heap.allocate(500 * (11 + random() % 4));
    heap.free(second);
    heap.free(first);
  }
  EXPECT_LT(heap.offers(), kTimes / 10);
}

// There comes to be more room while something else goes on.
TEST(RoundsWithinRoundsTest, ARoundIsGoneOnWithInMoreRoom) {
  FollowedHeap heap;
  const auto rounds = [&heap] {
    for (int times = 0; times < 100; ++times) round_of(heap, 0);
  };
  const auto others = [&heap] {
    std::vector<std::uint64_t> blocks;
    for (std::uint64_t i = 0; i < 280; ++i) blocks.push_back(heap.allocate(500 * (100 + i)));
    for (const std::uint64_t block : blocks) heap.free(block);
  };
  rounds();
  others();
  rounds();
  const std::size_t room = heap.room();
  others();
  EXPECT_GT(heap.room(), room);
  EXPECT_LE(heap.room(), 4 * room);  // however long they took
  const Share share(heap);
  rounds();
  EXPECT_EQ(share.now(), 1);
  heap.look();
}

}  // namespace
}  // namespace cistern
