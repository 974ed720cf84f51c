// Places that are known are taken without a look at the free runs: what is taken so is free, and nothing is placed
// otherwise than it would have been.

#include "allocator/page_placement.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tests/allocator/page_shortcut_case.h"

namespace cistern {
namespace {

class PageShortcutTest : public PageShortcutCase {};

TEST_F(PageShortcutTest, WhatComesAgainIsKnown) {
  const PagedBlock first = allocate(20);
  release(first);
  const auto again = known(20);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->address, first.address);
  EXPECT_EQ(runs_of(placement_), (std::vector<FreeRun>{{first.address + 20, 108, 0}}));
  release(*again);
  EXPECT_EQ(runs_of(placement_), (std::vector<FreeRun>{{first.address, 128, 0}}));
  placement_.audit();
}

// The state is that of the place, whose first bytes wait for an event.
TEST_F(PageShortcutTest, NoPlaceIsTakenThatAFreeWaitsFor) {
  release(allocate(20));
  const PagedBlock small = allocate(10);
  placement_.freed(small);
  EXPECT_FALSE(known(20));
  placement_.settle(small);
  EXPECT_TRUE(known(20));
}

// As long as the same bytes wait.
TEST_F(PageShortcutTest, WhatComesAgainWhileAFreeWaitsIsKnown) {
  for (int pass = 0; pass < 3; ++pass) {
    const PagedBlock late = allocate(30);
    placement_.freed(late);
    for (const Sectors sectors : {20, 50}) {
      const auto block = known(sectors);
      EXPECT_EQ(block.has_value(), pass > 0);
      release(block ? *block : allocate(sectors));
    }
    placement_.settle(late);
  }
  placement_.audit();
}

// Two streams have a place in turn, and its bytes come and go with a longer one.
TEST_F(PageShortcutTest, APlaceIsKnownWhicheverStreamHadItLast) {
  const PagedBlock middle = between_others(100);
  release(middle);
  const auto pass = [&] {
    int found = 0;
    const std::vector<std::pair<Sectors, StreamNumber>> requests = {{60, 0}, {100, 1}, {60, 1}, {100, 0}};
    for (const auto& [sectors, stream] : requests) {
      const auto known_block = known(sectors, stream);
      found += known_block ? 1 : 0;
      const PagedBlock block = known_block ? *known_block : allocate(sectors, stream);
      EXPECT_EQ(block.address, middle.address);
      EXPECT_EQ(block.stream, stream);
      release(block);
    }
    return found;
  };
  for (int i = 0; i < 3; ++i) static_cast<void>(pass());
  hand_overs_ = 0;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pass(), 2);
  EXPECT_EQ(hand_overs_, 6);
  EXPECT_EQ(runs_of(placement_), (std::vector<FreeRun>{{middle.address, 100, 0}}));
  placement_.audit();
}

// The free runs do not know yet that the other stream left it; or not even that it came.
TEST_F(PageShortcutTest, APlaceThatIsNotHadAfterAllIsWhoseItWas) {
  const PagedBlock middle = between_others(100);
  release(middle);
  for (int turn = 0; turn < 4; ++turn)
    for (const StreamNumber stream : {1, 0}) release(allocate(100, stream));
  for (const bool is_looked_at : {true, false}) {
    const PagedBlock theirs = allocate(100, 1);
    EXPECT_EQ(theirs.address, middle.address);
    if (is_looked_at) static_cast<void>(runs_of(placement_));
    release(theirs);
    const auto plan = placement_.plan_known({100, 0});
    ASSERT_TRUE(plan);
    placement_.abandon(*plan);
    EXPECT_EQ(runs_of(placement_), (std::vector<FreeRun>{{middle.address, 100, 1}}));
    release(allocate(100, 0));
  }
  placement_.audit();
}

TEST_F(PageShortcutTest, NothingIsTakenWhileAPlanHasBytes) {
  release(allocate(20));
  PagePlan small = placement_.plan({10, 0});
  ASSERT_EQ(small.kind, PlanKind::placed);
  EXPECT_FALSE(known(20));
  placement_.abandon(small);
  EXPECT_TRUE(known(20));
}

// A smaller request had a part of a place, and another block the rest: later the place is had whole.
TEST_F(PageShortcutTest, EqualStatesAreNotEqualBytes) {
  const PagedBlock place = allocate(20);
  const PagedBlock rest = allocate(108);
  release(place);
  release(allocate(20));
  const PagedBlock part = allocate(18);
  EXPECT_EQ(part.logged.sectors, 20);
  const PagedBlock between = allocate(2);
  EXPECT_EQ(between.address, part.address + 18);
  release(between);
  release(part);
  const PagedBlock whole = allocate(20);
  EXPECT_EQ(whole.address, part.address);
  EXPECT_FALSE(known(2));
  EXPECT_NE(allocate(2).address, between.address);
  placement_.audit();
  release(rest);
}

// One state comes with the whole place taken and with a part of it, in turn.
TEST_F(PageShortcutTest, WhatIsKnownOfOneStateIsKnownOfEachWayToTakeItsPlaces) {
  release(allocate(20));
  for (int pass = 0; pass < 3; ++pass)
    for (const Sectors sectors : {20, 18}) {
      const PagedBlock place = allocate(sectors);
      const auto next = known(30);
      EXPECT_EQ(next.has_value(), pass > 0) << "pass " << pass << ", " << sectors << " sectors";
      release(next ? *next : allocate(30));
      release(place);
    }
  placement_.audit();
}

// Which of two places a smaller request gets depends on what came before it, once: then it is known.
TEST_F(PageShortcutTest, WhatServedASmallerRequestServesItAgain) {
  release(allocate(80));
  release(allocate(84));
  release(allocate(80));
  const PagedBlock first = allocate(78);
  EXPECT_EQ(first.logged.sectors, 84) << "84 came behind 80";
  release(first);
  release(allocate(84));
  const auto again = known(78);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->logged.sectors, 84);
}

TEST_F(PageShortcutTest, BytesThatAreHandedOverAgainAreKnown) {
  placement_.set_page_limit(1);
  hand_to_and_fro(3);
  EXPECT_GT(hand_overs_, 0);
  EXPECT_FALSE(known(60, 0)) << "they are the other stream's";
  const auto plan = placement_.plan_known({60, 0});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->owners, std::vector<StreamNumber>{1});
  EXPECT_FALSE(known(60, 1)) << "a plan has them";
  placement_.abandon(*plan);
  placement_.audit();
  EXPECT_FALSE(placement_.plan_known({60, 0, false})) << "it may not take others'";
}

// Who has the stream's lock alone leaves them to the heap's, and the free runs as they are.
TEST_F(PageShortcutTest, BytesThatAreHandedOverAgainAreNotLookedForInFreeRuns) {
  placement_.set_page_limit(1);
  hand_to_and_fro(3);
  release(allocate(60, 0));
  const PagedBlock last = allocate(60, 1);
  release(last);
  OwnBytes known{.request = {60, 0}};
  EXPECT_FALSE(placement_.find_own(known));
  EXPECT_TRUE(placement_.place(last.known).is_changed);
  OwnBytes other{.request = {50, 0}};
  EXPECT_FALSE(placement_.find_own(other));
  EXPECT_FALSE(placement_.place(last.known).is_changed) << "another request is";
}

// In the state in which a stream took its own bytes they may be another's by now.
TEST_F(PageShortcutTest, AnEqualStateMayHaveItsBytesOfAnotherStream) {
  placement_.set_page_limit(1);
  release(allocate(60, 0));
  const auto own = known(60, 0);
  ASSERT_TRUE(own);
  release(*own);
  release(allocate(128, 1));
  EXPECT_FALSE(known(60, 0));
  PagePlan plan = placement_.plan({60, 0});
  EXPECT_EQ(plan.owners, std::vector<StreamNumber>{1});
  release(placement_.commit(plan));
  placement_.audit();
}

// The stream that has the bytes last has them, whenever the free runs are looked at.
TEST_F(PageShortcutTest, FreeRunsSayWhoHadTheBytesLast) {
  placement_.set_page_limit(1);
  hand_to_and_fro(4);
  const int before = hand_overs_;
  release(allocate(60, 0));
  release(allocate(60, 1));
  release(allocate(60, 0));
  EXPECT_EQ(hand_overs_, before + 3);
  for (const FreeRun& run : runs_of(placement_)) EXPECT_EQ(run.stream, run.address % kPageOf128.sectors() < 60 ? 0 : 1);
  placement_.audit();
}

// A wait that the driver refuses: the bytes are those of the streams that had them, also where somebody looked
// meanwhile.
TEST_F(PageShortcutTest, AHandOverThatIsAbandonedLeavesTheBytesWhoseTheyWere) {
  placement_.set_page_limit(1);
  for (const bool is_looked_at : {false, true}) {
    hand_to_and_fro(4);
    const std::vector<FreeRun> before = runs_of(placement_);
    for (int i = 0; i < 3; ++i) {
      release(allocate(60, 1));
      const auto plan = placement_.plan_known({60, 0});
      ASSERT_TRUE(plan);
      if (is_looked_at) static_cast<void>(runs_of(placement_));
      placement_.abandon(*plan);
    }
    EXPECT_EQ(runs_of(placement_), before);
    EXPECT_FALSE(known(60, 0));
    placement_.audit();
  }
}

// The same requests without the shortcut: it decides nothing, whenever the free runs are looked at, whatever is
// pending, goes back to the driver or is of other streams.
TEST_F(PageShortcutTest, ItChangesNoDecision) {
  PagePlacement plain(kPageOf128);
  ScriptedDriver plain_driver;
  const auto place = [](PagePlacement& placement, ScriptedDriver& driver, const PageRequest& request) {
    PagePlan made = placement.plan(request);
    if (made.kind == PlanKind::refused_by_limit) return std::optional<PagedBlock>();
    EXPECT_TRUE(made.gather.empty() || carry_out(made.gather, driver));
    return std::optional(placement.commit(made));
  };
  std::int64_t known = 0;
  std::int64_t fitted = 0;  // into the stream's own bytes
  std::int64_t handed_over = 0;
  std::int64_t refused = 0;
  for (std::uint64_t seed = 1; seed <= 18; ++seed) {
    std::mt19937_64 random(seed);
    std::mt19937_64 given_up(seed);
    const int streams = seed % 3 == 1 ? 1 : 2 + static_cast<int>(seed % 2);
    // A step that varies: some of its operations are of another size, late, or left out.
    const std::vector<Operation> step = any_program(random, 60, seed % 2 == 0 ? 1500 : 300, streams);
    // With little memory more bytes go from stream to stream, and some requests get none.
    const bool is_scarce = seed % 4 >= 2;
    for (int pass = 0; pass < 12; ++pass) {
      const std::int64_t limit = is_scarce && pass > 2 ? plain.table().pages() : PagePlacement::kNoLimit;
      placement_.set_page_limit(limit);
      plain.set_page_limit(limit);
      const std::uint64_t noise = pass % 3 == 0 ? 25 : 1000000;
      std::map<int, std::pair<PagedBlock, PagedBlock>> live;
      std::vector<std::pair<PagedBlock, PagedBlock>> pending;
      const auto settle = [&](const std::pair<PagedBlock, PagedBlock>& both) {
        placement_.settle(both.first);
        plain.settle(both.second);
      };
      for (const auto& [id, sectors, stream] : step) {
        if (random() % 20 == 0) {
          for (const auto& both : pending) settle(both);
          pending.clear();
        }
        if (random() % 150 == 0) {
          ASSERT_EQ(runs_of(placement_), runs_of(plain)) << "seed " << seed << " pass " << pass;
          placement_.audit();
        }
        if (sectors == 0) {
          const auto both = live.extract(id);
          if (both.empty()) continue;
          placement_.freed(both.mapped().first);
          plain.freed(both.mapped().second);
          if (random() % noise == 0)
            pending.push_back(both.mapped());
          else
            settle(both.mapped());
          continue;
        }
        if (random() % noise == 0) continue;
        const Sectors wanted =
            random() % noise == 0 ? 1 + sectors / 2 : sectors - (random() % noise == 0 ? sectors / 10 : 0);
        const PageRequest request{wanted, stream, random() % noise != 0};
        std::optional<PagedBlock> block = placement_.take_known(request);
        if (block) ++known;
        if (!block) block = take_part(request);
        while (!block && request.may_take_others) {
          OwnBytes own{.request = request};
          if (!placement_.find_own(own)) break;
          ++fitted;
          if (given_up() % 4 != 0) block = placement_.block_at(placement_.take_own(own, true));
        }
        while (!block) {
          auto again = placement_.plan_known(request);
          if (!again) {
            block = place(placement_, driver_, request);
            if (!block) break;
          } else {
            ++handed_over;
            if (random() % 4 == 0) static_cast<void>(runs_of(placement_));
            if (random() % 4 == 0)
              placement_.abandon(*again);
            else
              block = placement_.commit(*again);
          }
        }
        const auto other = place(plain, plain_driver, request);
        ASSERT_EQ(block.has_value(), other.has_value()) << "seed " << seed << " pass " << pass << " block " << id;
        if (!block) {
          ++refused;
          continue;
        }
        ASSERT_EQ(block->address, other->address) << "seed " << seed << " pass " << pass << " block " << id;
        live.emplace(id, std::pair(*block, *other));
        ASSERT_EQ(placement_.table().pages(), plain.table().pages());
      }
      for (const auto& both : pending) settle(both);
      for (const auto& [id, both] : live) {
        placement_.freed(both.first);
        plain.freed(both.second);
        settle(both);
      }
      if (pass % 5 == 4) {
        give_back(placement_, driver_, 3);
        give_back(plain, plain_driver, 3);
      }
    }
    ASSERT_EQ(runs_of(placement_), runs_of(plain));
    ASSERT_EQ(driver_.mapped, plain_driver.mapped);
    ASSERT_EQ(driver_.calls, plain_driver.calls);
  }
  EXPECT_GT(known, 2000);
  EXPECT_GT(fitted, 500);
  EXPECT_GT(handed_over, 30);
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, known);
}

// Where nothing came again for long only a sample of states is in the log: with it, too. What comes again then is
// found, and makes no calls in the end.
TEST_F(PageShortcutTest, ASampleOfStatesChangesNoDecisionAndFindsWhatComesAgain) {
  constexpr std::size_t kEntries = 2 * LogReach::kFewest;
  PagePlacement quick(kPageOf128, PagePlacement::kNoLimit, PagePlacement::kNoLimit, kEntries);
  PagePlacement plain(kPageOf128, PagePlacement::kNoLimit, PagePlacement::kNoLimit, kEntries);
  ScriptedDriver quick_driver;
  ScriptedDriver plain_driver;
  std::int64_t known = 0;
  const auto place = [](PagePlacement& placement, ScriptedDriver& driver, const PageRequest& request) {
    PagePlan made = placement.plan(request);
    EXPECT_TRUE(made.gather.empty() || carry_out(made.gather, driver));
    return placement.commit(made);
  };
  std::mt19937_64 given_up(20261126);
  using Both = std::pair<PagedBlock, PagedBlock>;
  const auto allocate_both = [&](const PageRequest& request) {
    std::optional<PagedBlock> block = quick.take_known(request);
    known += block ? 1 : 0;
    OwnBytes own{.request = request};
    bool is_own = !block && quick.find_own(own);
    if (is_own && given_up() % 4 == 0) {
      own = {.request = request};
      is_own = quick.find_own(own);
    }
    if (is_own) block = quick.block_at(quick.take_own(own, true));
    if (auto handed = block ? std::nullopt : quick.plan_known(request)) block = quick.commit(*handed);
    if (!block) block = place(quick, quick_driver, request);
    const PagedBlock other = place(plain, plain_driver, request);
    EXPECT_EQ(block->address, other.address);
    return Both(*block, other);
  };
  const auto free_both = [&](const Both& both) {
    quick.freed(both.first);
    plain.freed(both.second);
    quick.settle(both.first);
    plain.settle(both.second);
  };
  std::mt19937_64 random(20261126);
  std::vector<Both> live;
  // The last of these go into windows, until there are so many mappings that some are to retire.
  for (const std::uint64_t most : {50, 1000}) {
    for (int i = 0; i < 60'000; ++i) {
      if (live.size() == 30) {
        const std::size_t at = random() % live.size();
        free_both(std::exchange(live[at], live.back()));
        live.pop_back();
      }
      live.push_back(
          allocate_both({static_cast<Sectors>(1 + random() % most), static_cast<StreamNumber>(random() % 2)}));
      ASSERT_FALSE(HasFailure()) << "request " << i << " of up to " << most;
    }
    quick.audit();
  }
  std::vector<PageRequest> step;
  for (int i = 0; i < 60; ++i)
    step.push_back({static_cast<Sectors>(1 + random() % 1000), static_cast<StreamNumber>(random() % 2)});
  // Returns how many were known.
  const auto pass = [&] {
    known = 0;
    std::vector<Both> blocks;
    for (const PageRequest& request : step) blocks.push_back(allocate_both(request));
    for (const Both& both : blocks) free_both(both);
    return known;
  };
  static_cast<void>(pass());
  EXPECT_LT(pass(), 30) << "of most states there is nothing";
  for (int i = 0; i < 2000; ++i) {
    static_cast<void>(pass());
    ASSERT_FALSE(HasFailure()) << "pass " << i;
  }
  const auto calls = quick_driver.calls;
  EXPECT_EQ(pass(), 60);
  EXPECT_EQ(quick_driver.calls, calls);
  quick.audit();
}

}  // namespace
}  // namespace cistern
