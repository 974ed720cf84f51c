// What a request gets of its stream's own free bytes, and places that are taken again although no log has them. That it
// is what any plan would say is tested with what else decides nothing: page_shortcut_test.cpp.

#include "allocator/page_placement.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "tests/allocator/page_shortcut_case.h"
#include "tests/allocator/placement_case.h"

namespace cistern {
namespace {

class PageFitTest : public PlacementCase {
 protected:
  ~PageFitTest() override { EXPECT_NO_THROW(placement_.audit()); }

  PagedBlock allocate(Sectors sectors, StreamNumber stream = 0) { return place({sectors, stream}); }
  static void release_to(PagePlacement& placement, const PagedBlock& block) {
    placement.freed(block);
    placement.settle(block);
  }
  [[nodiscard]] bool fits(Sectors sectors, StreamNumber stream = 0) {
    OwnBytes own{.request = {sectors, stream}};
    return placement_.find_own(own);
  }
};

TEST_F(PageFitTest, ARequestGetsFreeBytesOfItsStream) {
  const PagedBlock kept = allocate(20);
  OwnBytes own{.request = {30, 0}};
  ASSERT_TRUE(placement_.find_own(own));
  const PagedBlock block = placement_.block_at(placement_.take_own(own, true));
  EXPECT_EQ(block.address, kept.address + 20);
  EXPECT_EQ(runs(), (std::vector<FreeRun>{{kept.address + 50, 78, 0}}));
  release(block);
  EXPECT_EQ(runs(), (std::vector<FreeRun>{{kept.address + 20, 108, 0}}));
}

TEST_F(PageFitTest, WhatIsFoundAloneLeavesAllAsItWas) {
  static_cast<void>(allocate(20));
  const std::vector<FreeRun> before = runs();
  EXPECT_TRUE(fits(30));
  EXPECT_EQ(runs(), before);
}

TEST_F(PageFitTest, NotWhereMemoryHasToBeMapped) {
  static_cast<void>(allocate(100));
  EXPECT_FALSE(fits(100));
}

// Of another stream, which the request's has to wait for.
TEST_F(PageFitTest, NotWhereBytesAreOthers) {
  release(allocate(128, 1));
  EXPECT_FALSE(fits(128, 0));
  EXPECT_TRUE(fits(128, 1));
}

TEST_F(PageFitTest, NotWhileBytesAreUnderWay) {
  static_cast<void>(allocate(20));
  PagePlan out = placement_.plan({50, 0});
  EXPECT_FALSE(fits(10));
  placement_.abandon(out);
  EXPECT_TRUE(fits(10));
}

TEST_F(PageFitTest, APlaceIsTakenAgainThatNoLogHas) {
  const PagedBlock first = allocate(20);
  const PagedBlock block = placement_.block_at(placement_.take_again(first.address + 30, 40, 0, true));
  EXPECT_EQ(block.address, first.address + 30);
  EXPECT_EQ(runs(), (std::vector<FreeRun>{{first.address + 20, 10, 0}, {first.address + 70, 58, 0}}));
  release(block);
  release(first);
  EXPECT_EQ(runs(), (std::vector<FreeRun>{{first.address, 128, 0}}));
}

// A place without a name, left and not looked at since, and one of the same bytes that is known.
TEST_F(PageFitTest, APlaceThatNobodyKnowsIsTakenAgainBeforeItIsLookedAt) {
  PagePlacement placement(kPageOf128, PagePlacement::kNoLimit, PagePlacement::kNoLimit, 2 * LogReach::kFewest);
  std::mt19937_64 random(20261127);
  std::vector<PagedBlock> live;
  int unnamed = 0;
  for (int i = 0; i < 8000; ++i) {
    if (live.size() == 30) {
      std::swap(live[random() % live.size()], live.back());
      release_to(placement, live.back());
      live.pop_back();
    }
    const PageRequest request{1 + static_cast<Sectors>(random() % 50), 0};
    OwnBytes own{.request = request};
    if (!placement.find_own(own)) {
      PagePlan plan = placement.plan(request);
      ASSERT_TRUE(plan.gather.empty() || carry_out(plan.gather, driver_));
      live.push_back(placement.commit(plan));
      continue;
    }
    live.push_back(placement.block_at(placement.take_own(own, true)));
    const PagedBlock block = live.back();
    if (placement.place(block.known).is_named) continue;
    ++unnamed;
    const std::vector<FreeRun> others = runs_of(placement);
    release_to(placement, block);
    live.back() = placement.block_at(placement.take_again(block.address, block.sectors, 0, true));
    ASSERT_NE(live.back().known, block.known);
    ASSERT_EQ(runs_of(placement), others) << "request " << i;
    if (i % 100 == 0) placement.audit();
  }
  EXPECT_GT(unnamed, 1000) << "most states are none of the log's";
}

// Whether or not a block was ever there.
TEST_F(PageFitTest, WhatIsTakenAgainMakesTheStateOfAnyBlock) {
  const auto state_of = [](PagePlacement& placement) {
    const PagePlan plan = placement.plan({1, 0});
    placement.abandon(plan);
    return plan.positions;
  };
  const PagedBlock first = allocate(20);
  const PagedBlock second = allocate(40);
  PagePlacement other(kPageOf128);
  ScriptedDriver its_driver;
  PagePlan plan = other.plan({20, 0});
  ASSERT_TRUE(carry_out(plan.gather, its_driver));
  ASSERT_EQ(other.commit(plan).address, first.address);
  static_cast<void>(other.take_again(second.address, 40, 0, true));
  EXPECT_EQ(state_of(other), state_of(placement_));
}

// The state is that in which the block was there first, and with it what the log knows.
TEST_F(PageFitTest, APlaceThatIsTakenAgainMakesTheStateThatItMade) {
  const PagedBlock first = allocate(20);
  const PagedBlock second = allocate(30);
  release(second);
  release(first);
  const PagedBlock again = placement_.block_at(placement_.take_again(first.address, 20, 0, true));
  const PlacementLog::Number known = placement_.find_known({30, 0});
  ASSERT_NE(known, PlacementLog::kNone);
  EXPECT_EQ(placement_.place(placement_.place_of(known)).address, second.address);
  release(again);
}

// A handle that the block covers whole is at home there as soon as somebody looks.
TEST_F(PageFitTest, WhatIsTakenAgainBringsHandlesHome) {
  const PagedBlock large = allocate(3 * 128);
  release(large);
  const PagedBlock again = placement_.block_at(placement_.take_again(large.address, 3 * 128, 0, true));
  EXPECT_TRUE(placement_.place(again.known).covers_handles);
  release(again);
  EXPECT_EQ(runs(), (std::vector<FreeRun>{{large.address, 3 * 128, 0}}));
}

// Requests of random sizes up to 16 pages, as many in each octave, with 300 live. Returns the driver's calls for the
// last half of them.
int calls_of_random_requests() {
  PagePlacement placement;
  ScriptedDriver driver;
  std::mt19937_64 random(20261126);
  std::vector<PagedBlock> live;
  constexpr int kRequests = 40'000;
  int calls_before = 0;
  for (int i = 0; i < kRequests; ++i) {
    if (i == kRequests / 2) calls_before = driver.calls;
    if (live.size() == 300) {
      PagedBlock& went = live[random() % live.size()];
      placement.freed(went);
      placement.settle(went);
      went = live.back();
      live.pop_back();
    }
    const std::uint64_t least = std::uint64_t{1} << random() % 16;
    PagePlan plan = placement.plan({static_cast<Sectors>(least + random() % least), 0});
    EXPECT_TRUE(plan.gather.empty() || carry_out(plan.gather, driver));
    live.push_back(placement.commit(plan));
  }
  placement.audit();
  return driver.calls - calls_before;
}

// 770, and 2,502 if many runs are looked at.
TEST(PageFit, WhereSizesDoNotComeAgainLargeRunsAreKeptWhole) { EXPECT_LT(calls_of_random_requests(), 1'250); }

// Steps of 40 requests, each of one of three sizes, that are freed the last first. As a heap asks: what is known is
// taken unasked.
class StepsThatDifferTest : public PageShortcutCase {
 protected:
  ~StepsThatDifferTest() override { EXPECT_NO_THROW(placement_.audit()); }

  template <class Look>
  void step(std::uint64_t seed, Look&& look) {
    std::mt19937_64 random(seed);
    std::vector<PagedBlock> blocks;
    for (std::uint64_t i = 0; i < 40; ++i) {
      const std::uint64_t size = 3 * i + random() % 3;
      const auto sectors = static_cast<Sectors>(1 + size * 7919 % 1500);
      look(sectors);
      blocks.push_back(allocate(sectors));
    }
    for (; !blocks.empty(); blocks.pop_back()) release(blocks.back());
  }
  // Returns how many calls the driver got.
  int steps(int times) {
    const int before = driver_.calls;
    for (int i = 0; i < times; ++i) step(++seed_, [](Sectors) {});
    return driver_.calls - before;
  }
  // To where they show, too, as far as anybody knows who does not look.
  void move_free_handles() {
    const PageTable& table = placement_.table();
    std::vector<std::pair<PageTable::Handle, Sectors>> elsewhere;
    table.for_each_mapping([&](PageTable::Handle handle, Sectors address) {
      const Sectors home = table.home_of(handle);
      if (address == home || !placement_.free_runs().is_free_of(home, table.sectors_of(handle), 0)) return;
      if (elsewhere.empty() || elsewhere.back().first != handle) elsewhere.emplace_back(handle, address);
    });
    for (const auto& [handle, address] : elsewhere)
      release(placement_.block_at(placement_.take_again(address, table.sectors_of(handle), 0, true)));
  }
  [[nodiscard]] bool is_home(Sectors address, Sectors sectors) const {
    bool is_home = true;
    placement_.table().for_each_handle_in(address, sectors, [&](PageTable::Handle handle) {
      is_home = is_home && placement_.table().at_home(address) == address;
      address = placement_.table().mapping_begin(address) + placement_.table().sectors_of(handle);
    });
    return is_home;
  }

  std::mt19937_64 random_{20261202};
  std::uint64_t seed_ = 20261201;
};

// 30 calls, and 19,000 in each thousand steps where remembered places go first for good.
TEST_F(StepsThatDifferTest, FindRestInFreeRuns) {
  static_cast<void>(steps(1000));
  EXPECT_LT(steps(1000), 1000);
  EXPECT_LT(steps(1000), 100);
}

// What the log knows from before is followed where it takes no page out of a run.
TEST_F(StepsThatDifferTest, FollowPlacesInFreeRunsAlone) {
  for (int turn = 0; turn < 2; ++turn)
    for (std::uint64_t seed = 0; seed < 20; ++seed) step(seed, [](Sectors) {});
  static_cast<void>(steps(1000));
  int known = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    step(seed, [&](Sectors sectors) {
      const PlacementLog::Number found = placement_.find_known({sectors, 0});
      if (found == PlacementLog::kNone) return;
      ++known;
      EXPECT_TRUE(is_home(placement_.logged_place(found).address, sectors));
    });
  EXPECT_GT(known, 20);
}

// What comes again beside requests that gather follows no place because of them.
TEST_F(StepsThatDifferTest, TurnsPutNothingDownToPlaces) {
  for (int i = 0; i < 2000; ++i) {
    std::vector<PagedBlock> blocks;
    for (int k = 0; k < 40; ++k) blocks.push_back(allocate(static_cast<Sectors>(1 + random_() % 1500)));
    placement_.turned(blocks.back().known, 10'000);
    placement_.recurred(0, 100, 10'000);
    for (; !blocks.empty(); blocks.pop_back()) release(blocks.back());
  }
  EXPECT_FALSE(placement_.fits_go_first(0));
  static_cast<void>(steps(1000));
  EXPECT_TRUE(placement_.fits_go_first(0)) << "these do follow places";
}

// A block that came to a place elsewhere, and went, took pages there before anybody looked at the free runs.
TEST_F(StepsThatDifferTest, FollowPlacesWhereTheirPagesStillAre) {
  static_cast<void>(steps(1500));
  for (int turn = 0; turn < 2; ++turn) step(1, [](Sectors) {});
  int known = 0;
  step(1, [&](Sectors sectors) {
    move_free_handles();
    const PlacementLog::Number found = placement_.find_known({sectors, 0});
    if (found == PlacementLog::kNone) return;
    ++known;
    static_cast<void>(placement_.free_runs());
    EXPECT_TRUE(is_home(placement_.logged_place(found).address, sectors));
  });
  EXPECT_LT(known, 40);
}

// A step that comes again is known as a whole once it was placed in free runs.
TEST_F(StepsThatDifferTest, KnowAStepThatComesAgain) {
  static_cast<void>(steps(1500));
  for (int turn = 0; turn < 2; ++turn) step(1, [](Sectors) {});
  step(1, [&](Sectors sectors) { EXPECT_NE(placement_.find_known({sectors, 0}), PlacementLog::kNone); });
}

}  // namespace
}  // namespace cistern
