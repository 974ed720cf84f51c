// Steps that come again are followed, and nobody can tell: the class alone, over a plain heap.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "allocator/recurrence.h"
#include "tests/byte_units.h"
#include "tests/loop_program.h"
#include "tests/property.h"
#include "tests/recurrence_heap.h"

namespace cistern {
namespace {

TEST(RecurrenceTest, RoundsAreFollowedAndCountedAsTheyWouldBe) {
  FollowedHeap heap;
  LoopProgram program(heap, 1);
  program.run(400, 2, 0);
  heap.look();
  EXPECT_GT(heap.followed(), 0);
  const std::int64_t before = heap.followed();
  // What did not come again in between is looked for anew.
  program.run(1, 1, 1000);
  program.run(400, 1, 0);
  heap.look();
  EXPECT_GT(heap.followed(), before);
}

// Blocks that others use and that wait, in rounds, with detours of all kinds now and then.
TEST(RecurrenceTest, UsesAndWaitsAreSteps) {
  std::int64_t followed = 0;
  std::int64_t told = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    FollowedHeap heap;
    std::mt19937_64 random(seed);
    const std::uint64_t round_seed = random();
    const std::uint64_t detours = seed % 4;
    for (int round = 0; round < 400; ++round) {
      std::mt19937_64 of_round(round_seed);
      for (std::uint64_t i = 8 + round_seed % 24; i != 0; --i) {
        if (random() % 1000 < detours) heap.look(random() % 2 == 0);
        heap.allocate(500 * (1 + of_round() % 9));
        const auto block = std::next(heap.live().begin(), static_cast<std::ptrdiff_t>(of_round() % heap.live().size()));
        const std::uint64_t address = block->first;
        if (heap.plain().waiting().contains(address))
          heap.end(address);
        else if (of_round() % 3 == 0 && !heap.plain().used().contains(address))
          heap.use(address);
        else if (of_round() % 2 == 0)
          heap.free(address);
      }
      // Some wait over the end of the round.
      while (!heap.plain().waiting().empty() && of_round() % 4 != 0) heap.end(*heap.plain().waiting().begin());
      while (heap.live().size() > heap.plain().waiting().size() + 2) {
        const auto last = std::find_if(heap.live().rbegin(), heap.live().rend(), [&](const auto& block) {
          return !heap.plain().waiting().contains(block.first);
        });
        heap.free(last->first);
      }
    }
    heap.look();
    followed += heap.followed();
    told += heap.told();
  }
  EXPECT_GT(followed, told / 3);
}

TEST(RecurrenceTest, ABlockThatIsUsedIsAnotherState) {
  FollowedHeap heap;
  const auto turn = [&](bool is_used) {
    const std::uint64_t kept = heap.allocate(3000);
    if (is_used) heap.use(kept);
    for (int i = 0; i < 30; ++i) heap.free(heap.allocate(1000 + 10 * static_cast<std::uint64_t>(i)));
    heap.free(kept);
    if (is_used) heap.end(kept);
  };
  for (int i = 0; i < 200; ++i) turn(false);
  EXPECT_GT(heap.followed(), 0);
  for (int i = 0; i < 200; ++i) turn(i % 7 == 3);
  heap.look();
}

TEST(RecurrenceTest, WhoLooksDoesNotEndIt) {
  FollowedHeap heap;
  LoopProgram program(heap, 3);
  program.run(300, 0, 0);
  const std::int64_t before = heap.followed();
  const std::int64_t told = heap.told();
  for (int round = 0; round < 300; ++round) {
    program.run_again(1, 0);
    heap.look(false);
  }
  EXPECT_GT(heap.followed() - before, (heap.told() - told) / 2);
}

// There is room for a few rounds, or there comes to be more. What is known of them stays known after more.
TEST(RecurrenceTest, ADetourAfterManyRoundsIsNotTheEndOfThem) {
  for (const std::size_t most_steps : {700, 70000}) {
    SCOPED_TRACE(most_steps);
    FollowedHeap heap(most_steps);
    LoopProgram program(heap, 4);
    program.run(1000, 1, 0);
    const std::int64_t round = heap.told() / 1000;
    for (int detour = 0; detour < 20; ++detour) {
      heap.free(heap.allocate(77777));
      const std::int64_t before = heap.followed();
      program.run_again(3 + detour, 1);
      EXPECT_GT(heap.followed() - before, (3 + detour) * round - 3);
    }
    heap.look();
  }
}

// The share of the steps that is followed of rounds of 200 steps, in which a block comes and goes that others do not
// know, or a pair is left out.
double followed_with_detours(std::size_t most_steps) {
  FollowedHeap heap(most_steps);
  std::mt19937_64 random(5);
  const auto step = [&heap, &random](std::uint64_t i, std::uint64_t detour) {
    if (i == detour) heap.free(heap.allocate(500 * (200 + random() % 50)));
    if (i + 1 != detour || random() % 2 == 0) heap.free(heap.allocate(500 * (30 + i % 7)));
  };
  std::int64_t followed = 0;
  std::int64_t told = 0;
  for (int round = 0; round < 1000; ++round) {
    if (round == 100) {
      followed = heap.followed();
      told = heap.told();
    }
    const std::uint64_t detour = round < 50 ? 1000 : random() % 50;
    std::vector<std::uint64_t> blocks;
    for (std::uint64_t i = 0; i < 50; ++i) {
      blocks.push_back(heap.allocate(500 * (1 + i * 7 % 23)));
      step(i, detour);
    }
    for (const std::uint64_t block : blocks) heap.free(block);
  }
  heap.look();
  return static_cast<double>(heap.followed() - followed) / static_cast<double>(heap.told() - told);
}

TEST(RecurrenceTest, WhatLeavesNothingBehindEndsNothing) {
  for (const std::size_t most_steps : {300, 700, 5000}) {
    SCOPED_TRACE(most_steps);
    EXPECT_GT(followed_with_detours(most_steps), 0.95);
  }
}

// A large block lies behind the hole whatever is in that.
TEST(RecurrenceTest, WhatIsLeftOutLeadsBackToWhereItBegan) {
  FollowedHeap heap;
  const std::uint64_t hole = heap.allocate(64 * kKibi);
  heap.allocate(512);
  heap.free(hole);
  const auto beside = [&heap](std::uint64_t kept) {
    std::vector<std::uint64_t> blocks;
    if (kept != 0) blocks = {heap.allocate(kept), heap.allocate(kept + 700)};
    blocks.push_back(heap.allocate(100 * kKibi));
    ASSERT_NO_THROW(blocks.push_back(heap.allocate(900)));
    for (; !blocks.empty(); blocks.pop_back()) heap.free(blocks.back());
  };
  for (int i = 0; i < 1000; ++i) beside(1000);
  EXPECT_GT(heap.followed(), 1000);
  beside(0);
  EXPECT_NO_THROW(heap.look());
}

// Some thousand steps, in which others come again thirty times each.
void round_of_rounds(FollowedHeap& heap) {
  std::vector<std::uint64_t> kept;
  for (std::uint64_t part = 0; part < 40; ++part) {
    kept.push_back(heap.allocate(600 + 512 * part));
    for (int times = 0; times < 30; ++times) {
      const std::uint64_t first = heap.allocate(1000 + 512 * part);
      const std::uint64_t second = heap.allocate(3000);
      heap.free(first);
      heap.free(second);
    }
  }
  for (const std::uint64_t block : kept) heap.free(block);
}

TEST(RecurrenceTest, RoundsWithinARoundDoNotHideIt) {
  FollowedHeap heap;
  for (int round = 0; round < 4; ++round) round_of_rounds(heap);
  const std::int64_t followed = heap.followed();
  const std::int64_t told = heap.told();
  for (int round = 0; round < 4; ++round) round_of_rounds(heap);
  EXPECT_EQ(heap.followed() - followed, heap.told() - told);
  heap.look();
}

// The state in which a round begins comes again in the middle of it, twice, and what follows is another part each time:
// there was room for a part, and for two. (Of 400 rounds made at random these took up to 11 times.)
TEST(RecurrenceTest, ARoundOfPartsThatEachLeadBackIsFollowedSoon) {
  struct Shape {
    std::vector<std::uint64_t> layers;  // of each part
    int inner;
    std::uint64_t apart;
  };
  for (const Shape& shape : {Shape{{41, 43, 14}, 21, 0}, Shape{{45, 10, 21}, 16, 2}, Shape{{58, 43, 9}, 36, 0}}) {
    FollowedHeap heap;
    const auto part = [&](std::uint64_t number) {
      std::vector<std::uint64_t> kept;
      for (std::uint64_t layer = 0; layer < shape.layers[number]; ++layer) {
        kept.push_back(heap.allocate(600 + 512 * layer));
        for (int times = 0; times < shape.inner; ++times) {
          const std::uint64_t first = heap.allocate(1000 + 512 * (layer + number));
          const std::uint64_t second = heap.allocate(3000 + 512 * number * shape.apart);
          heap.free(first);
          heap.free(second);
        }
      }
      for (const std::uint64_t block : kept) heap.free(block);
    };
    const auto round = [&] {
      for (const std::uint64_t number : {0U, 1U, 2U}) part(number);
    };
    for (int times = 0; times < 6; ++times) round();
    const std::int64_t followed = heap.followed();
    const std::int64_t told = heap.told();
    round();
    EXPECT_GT(heap.followed() - followed, (heap.told() - told) * 9 / 10) << shape.inner << " inner rounds";
    heap.look();
  }
}

// Requests of some shapes, in one order time and again, each of which leaves nothing behind: what was is again at once.
TEST(RecurrenceTest, ALongRoundWhoseStatesAllComeAgainSoonIsFollowed) {
  FollowedHeap heap;
  const auto epoch = [&heap] {
    std::mt19937_64 random(7);
    for (int request = 0; request < 200; ++request) {
      const std::uint64_t shape = random() % 16;
      std::vector<std::uint64_t> blocks;
      for (std::uint64_t layer = 0; layer < 10; ++layer) {
        blocks.push_back(heap.allocate(1000 + 512 * shape));
        blocks.push_back(heap.allocate(2000 + 512 * layer));
        heap.free(blocks[blocks.size() - 2]);
        blocks.erase(blocks.end() - 2);
      }
      for (const std::uint64_t block : blocks) heap.free(block);
    }
  };
  for (int times = 0; times < 20; ++times) epoch();
  const std::int64_t followed = heap.followed();
  const std::int64_t told = heap.told();
  for (int times = 0; times < 3; ++times) epoch();
  EXPECT_GT(heap.followed() - followed, (heap.told() - told) * 9 / 10);
  heap.look();
}

TEST(RecurrenceTest, TurnsThatAreNotToldAreNotLookedAtInVain) {
  Recurrence steps;
  const auto round = [&steps] {
    for (std::uint64_t block = 1; block <= 20; ++block) {
      if (!steps.passes_over()) steps.note(StreamStep::Kind::allocation, block << 20, 1000);
    }
    for (std::uint64_t block = 1; block <= 20; ++block) {
      if (!steps.passes_over()) steps.note(StreamStep::Kind::free, block << 20, 1000);
    }
  };
  steps.turned(2000000);
  for (int times = 0; times < 40; ++times) round();
  EXPECT_TRUE(steps.wants_room());
}

TEST(RecurrenceTest, WhatIsFollowedWantsNoMoreRoom) {
  FollowedHeap heap;
  for (int round = 0; round < 4; ++round) round_of_rounds(heap);
  const auto round = static_cast<std::size_t>(heap.told() / 4);
  // Other states are looked for, and for longer; a step beside the round ends following now and then.
  for (int times = 0; times < 400; ++times) {
    round_of_rounds(heap);
    if (times % 3 == 0) heap.free(heap.allocate(77777));
  }
  EXPECT_LE(heap.room(), 2 * round);
  heap.look();
}

TEST(RecurrenceTest, WhatIsFoundInVainIsNotLookedForEachTime) {
  FollowedHeap heap;
  LoopProgram program(heap, 6);
  program.run(300, 1, 0);
  const unsigned before = heap.offers();
  for (std::uint64_t size = 1; size < 1000; ++size) heap.free(heap.allocate(50000 + 500 * size));
  EXPECT_LT(heap.offers() - before, 20);
  heap.look();
}

// As where every few requests another stream's use is told: nothing is ever followed.
TEST(RecurrenceTest, WhereSomethingElseHappensSoonNothingIsWrittenDown) {
  Recurrence steps;
  int written = 0;
  std::uint64_t at = 0;
  // Twenty blocks come, and go. Returns whether the next steps are known.
  const auto step = [&] {
    const auto kind = at % 40 < 20 ? StreamStep::Kind::allocation : StreamStep::Kind::free;
    const std::uint64_t address = (at++ % 20 + 1) << 20;
    if (steps.passes_over()) return false;
    if (!steps.learns()) {
      steps.note(kind, address, 1000);
      return false;
    }
    ++written;
    return steps.learn(kind, {address, 1024, 1000, PoolKind::small}, {});
  };
  while (!steps.wants_room()) static_cast<void>(step());
  static_cast<void>(steps.take(Recurrence::Room::of(steps.wanted(Recurrence::kMostSteps))));
  constexpr int kSteps = 500'000;
  const auto cut_now_and_then = [&] {
    written = 0;
    for (int i = 0; i < kSteps; ++i) {
      if (i % 90 == 0) steps.cut();
      ASSERT_FALSE(step());
    }
    EXPECT_LT(written, kSteps / 100);
  };
  const auto until_known = [&] {
    int count = 1;
    while (!step() && count < kSteps) ++count;
    return count;
  };
  cut_now_and_then();
  // Goes on with the next steps, that many, as they are known.
  const auto follow_on = [&](std::uint64_t count) {
    steps.follow();
    for (; count != 0; --count, ++at) {
      const std::uint64_t address = (at % 20 + 1) << 20;
      const bool comes = at % 40 < 20;
      ASSERT_TRUE(comes ? steps.expects_allocation(1000) : steps.expects(StreamStep::Kind::free, address));
      steps.follow_next();
    }
    steps.stop([](const StreamStep&, std::int64_t) {}, [](const StreamStep&) {});
  };
  const auto follow = [&](std::uint64_t count) {
    follow_on(count);
    steps.cut();
  };
  EXPECT_LT(until_known(), kSteps) << "it is looked for again";
  follow(100);
  EXPECT_LT(until_known(), 200) << "what was followed was not in vain";
  follow(1);
  EXPECT_GT(until_known(), 500) << "a step that was followed is not worth those that were written down";
  follow(400);
  EXPECT_LT(until_known(), 200) << "as many are, however often there were less before";
  steps.cut();
  EXPECT_LT(until_known(), 1000) << "and what was in vain before is forgotten";
  cut_now_and_then();

  EXPECT_LT(until_known(), kSteps);
  follow_on(1000);
  for (int times = 0; times < 12; ++times) {
    steps.go_on();
    ASSERT_TRUE(step());
    follow_on(1);
  }
  steps.go_on();
  for (std::uint64_t i = 0; i < 150; ++i) {
    const auto kind = i % 2 == 0 ? StreamStep::Kind::allocation : StreamStep::Kind::free;
    static_cast<void>(steps.learn(kind, {(100 + i / 2) << 20, 1024, 1000, PoolKind::small}, {}));
  }
  steps.cut();
  EXPECT_GT(until_known(), 500) << "what was followed long ago is not worth what is written down now";
}

TEST(RecurrenceTest, ALoneBlockAfterARoundBeginsAnotherRound) {
  FollowedHeap heap;
  const auto repeat = [&heap] {
    for (int i = 0; i < 2000; ++i) {
      const std::uint64_t first = heap.allocate(1000);
      const std::uint64_t second = heap.allocate(2000);
      heap.free(first);
      heap.free(second);
    }
  };
  repeat();
  const std::int64_t followed = heap.followed();
  EXPECT_GT(followed, 4000);
  const std::uint64_t kept = heap.allocate(512);
  repeat();
  EXPECT_GT(heap.followed(), followed + 4000);
  heap.free(kept);
  heap.look();
}

// What is kept lies behind the hole in which the steps go round: their addresses are the same each time.
TEST(RecurrenceTest, TheSameStepsFromAnotherStateAreNotFollowed) {
  FollowedHeap heap;
  const std::uint64_t hole = heap.allocate(64 * kKibi);
  heap.allocate(512);
  heap.free(hole);
  const auto climb = [&heap](std::uint64_t unit, std::uint64_t steps) {
    std::uint64_t last = heap.allocate(unit);
    for (std::uint64_t step = 2; step <= steps; ++step) heap.free(std::exchange(last, heap.allocate(unit * step)));
    heap.free(last);
  };
  for (int i = 0; i < 400; ++i) {
    for (const std::uint64_t steps : {5, 6, 7}) climb(500, steps);  // where the writing may begin
    climb(600, 12);
    ASSERT_NO_THROW(heap.allocate(100 * kKibi));
  }
  EXPECT_EQ(heap.followed(), 0);
  EXPECT_NO_THROW(heap.look());
}

// A free that the same request follows costs as little.
TEST(RecurrenceTest, APairAloneIsNotFollowed) {
  FollowedHeap heap;
  for (int i = 0; i < 5000; ++i) heap.free(heap.allocate(1000));
  EXPECT_EQ(heap.followed(), 0);
  heap.look();
}

TEST(RecurrenceTest, LoopsWithDetoursAreCarriedOutAsTheyCame) {
  for (long seed = 0; seed < scaled_programs(2000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const std::size_t most_steps = random() % 2 == 0 ? std::size_t{1} << 18 : 700;
    FollowedHeap heap(most_steps, static_cast<unsigned>(random() % 4));
    LoopProgram program(heap, random());
    for (int part = 0; part < 4; ++part) {
      ASSERT_NO_THROW(program.run(1 + static_cast<int>(random() % 60), static_cast<int>(random() % 3), random() % 8));
      ASSERT_NO_THROW(heap.look());
    }
  }
}

TEST(RecurrenceTest, WhatIsTooLargeToTellIsCarriedOut) {
  FollowedHeap heap;
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t small = heap.allocate(512);
    heap.free(heap.allocate(std::uint64_t{9} << 30));
    heap.free(small);
  }
  EXPECT_EQ(heap.followed(), 0);
  heap.look();
}

TEST(RecurrenceTest, AFreeOfAnotherAddressIsNotTheExpectedOne) {
  const StreamStep::Of block{std::uint64_t{7} << 30, 1024, 600, PoolKind::small};
  const StreamStep step(StreamStep::Kind::free, block, {1, 1024});
  EXPECT_TRUE(step.is(StreamStep::Kind::free, block.address));
  for (const std::uint64_t other :
       {block.address + 1, block.address + 8, block.address + 512, block.address - 512, std::uint64_t{0}})
    EXPECT_FALSE(step.is(StreamStep::Kind::free, other)) << other;
  EXPECT_FALSE(step.is_allocation_of(600));
  const StreamStep allocation(StreamStep::Kind::allocation, block, {-1, -1024});
  EXPECT_TRUE(allocation.is_allocation_of(600));
  for (const std::uint64_t other : {std::uint64_t{601}, std::uint64_t{1} << 63 | 600, std::uint64_t{1} << 33 | 600}) {
    EXPECT_FALSE(allocation.is_allocation_of(other)) << other;
    EXPECT_FALSE(step.is_allocation_of(other)) << other;
  }
  EXPECT_FALSE(allocation.is(StreamStep::Kind::free, block.address));
  EXPECT_EQ(step.address(), block.address);
  EXPECT_EQ(step.bytes(), block.bytes);
  EXPECT_EQ(step.requested(), block.requested);
  EXPECT_EQ(step.pool(), PoolKind::small);
  for (const InactiveSplitChange& splits :
       {InactiveSplitChange{1, 1024}, InactiveSplitChange{-1, -1024}, InactiveSplitChange{-2, -512},
        InactiveSplitChange{0, -1024}, InactiveSplitChange{0, 512}, InactiveSplitChange{}}) {
    const StreamStep told(StreamStep::Kind::done, block, splits);
    EXPECT_EQ(told.splits().count, splits.count);
    EXPECT_EQ(told.splits().bytes, splits.bytes);
    EXPECT_EQ(told.kind(), StreamStep::Kind::done);
    EXPECT_EQ(told.pool(), PoolKind::small);
    EXPECT_EQ(told.requested(), block.requested);
  }
}

}  // namespace
}  // namespace cistern
