// Smaller requests that take a part of a place that is known, without a look at the free runs: what they get is free,
// and what the free runs would give.

#include "allocator/page_placement.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tests/allocator/page_shortcut_case.h"

namespace cistern {
namespace {

class PageShortcutPartsTest : public PageShortcutCase {};

// Steps that are now as long as one before, now a little shorter, in which frees wait at times.
TEST_F(PageShortcutPartsTest, PartsOfKnownPlacesAreThoseThatTheFreeRunsWouldGive) {
  PagePlacement plain(kPageOf128);
  ScriptedDriver plain_driver;
  std::mt19937_64 random(20261127);
  const std::vector<Operation> step = any_program(random, 200, 1500, 1);
  for (int pass = 0; pass < 60; ++pass) {
    const auto shorter = static_cast<Sectors>(random() % 20);  // in 160
    std::map<int, std::pair<PagedBlock, PagedBlock>> live;
    std::vector<std::pair<PagedBlock, PagedBlock>> pending;
    const auto settle_all = [&] {
      for (const auto& [block, other] : pending) {
        placement_.settle(block);
        plain.settle(other);
      }
      pending.clear();
    };
    for (const auto& [id, sectors, stream] : step) {
      if (sectors == 0) {
        const auto both = live.extract(id).mapped();
        placement_.freed(both.first);
        plain.freed(both.second);
        pending.push_back(both);
        if (pass % 3 != 0 || random() % 8 == 0) settle_all();
        continue;
      }
      // Single requests are of their own sizes, too.
      const Sectors less = random() % 50 == 0 ? static_cast<Sectors>(random() % 30) : shorter;
      const PageRequest request{sectors - sectors * less / 160, stream};
      std::optional<PagedBlock> block = placement_.take_known(request);
      if (!block) block = take_part(request);
      if (!block) {
        PagePlan plan = placement_.plan(request);
        ASSERT_TRUE(plan.gather.empty() || carry_out(plan.gather, driver_));
        block = placement_.commit(plan);
      }
      PagePlan plan = plain.plan(request);
      ASSERT_TRUE(plan.gather.empty() || carry_out(plan.gather, plain_driver));
      const PagedBlock other = plain.commit(plan);
      ASSERT_EQ(block->address, other.address) << "pass " << pass << " block " << id;
      live.emplace(id, std::pair(*block, other));
    }
    settle_all();
    ASSERT_EQ(runs_of(placement_), runs_of(plain)) << "pass " << pass;
    placement_.audit();
  }
  EXPECT_GT(parts_, 2000);
}

// Only what is proven is taken so: a place beside parts of places, bytes that wait or that another stream may have had,
// are looked for in the free runs.
TEST_F(PageShortcutPartsTest, APartIsTakenOnlyWhereNobodyElseMayHaveItsBytes) {
  const auto pass = [&](Sectors first, Sectors second) {
    const PagedBlock a = allocate(first);
    const PlacementLog::Number larger = placement_.find_larger({second, 0});
    release(a);
    return larger != PlacementLog::kNone;
  };
  const PagedBlock first = allocate(40);
  const PagedBlock second = allocate(64);
  release(second);
  release(first);
  EXPECT_TRUE(pass(40, 60));
  EXPECT_TRUE(pass(38, 60)) << "the first block may have less than its place";
  {
    const PagedBlock a = allocate(40);
    const PagedBlock waits = allocate(8);
    placement_.freed(waits);
    EXPECT_EQ(placement_.find_larger({60, 0}), PlacementLog::kNone) << "a free waits";
    placement_.settle(waits);
    release(a);
  }
  {
    const PagedBlock a = allocate(40);
    PagePlan plan = placement_.plan({500, 0});
    EXPECT_EQ(placement_.find_larger({60, 0}), PlacementLog::kNone) << "a plan is out";
    placement_.abandon(plan);
    release(a);
  }
  EXPECT_TRUE(pass(40, 60));
  {
    PagedBlock a = allocate(40);
    release(allocate(60));
    release(a);
    a = allocate(40);
    EXPECT_EQ(placement_.find_larger({60, 0}), PlacementLog::kNone) << "it is known as it is";
    release(a);
  }
  release(allocate(8, 1));
  EXPECT_FALSE(pass(40, 60)) << "another stream has some of the bytes";
}

// A place that waits is not waited for where the request goes elsewhere.
TEST_F(PageShortcutPartsTest, WhatCameNextIsNotPassedOverForAPlaceThatWaits) {
  const PagedBlock first = allocate(40);
  const PagedBlock next = allocate(64);
  placement_.freed(next);
  const PagedBlock other = allocate(60);
  ASSERT_NE(other.address, next.address);
  EXPECT_EQ(placement_.taken_place({64, 0}), std::nullopt) << "another state";
  placement_.settle(next);
  placement_.freed(other);
  release(first);
  ASSERT_EQ(allocate(40).address, first.address);
  EXPECT_EQ(placement_.taken_place({60, 0}), std::nullopt);
  EXPECT_EQ(place({60, 0}).address, next.address);
  placement_.settle(other);
}

// A claim gives bytes to a stream that may never have a block.
TEST_F(PageShortcutPartsTest, APartIsNotTakenOfWhatAnotherStreamClaimed) {
  placement_.abandon(placement_.plan({8, 1}));  // what it gets otherwise is refused
  const PagedBlock first = allocate(40);
  release(allocate(64));
  release(first);
  const auto again = known(40);
  const auto waits = known(64);
  ASSERT_TRUE(again && waits);
  placement_.freed(*waits);
  placement_.settle_for(waits->known, 1);
  release(*again);
  static_cast<void>(allocate(40));
  EXPECT_EQ(placement_.find_known({64, 0}), PlacementLog::kNone);
  EXPECT_EQ(placement_.find_larger({60, 0}), PlacementLog::kNone);
}

// Handles leave while a plan is under way: what it is noted under is of a log that is forgotten. Their addresses serve
// again, and another block may be at the place of one that was there then.
TEST_F(PageShortcutPartsTest, APlanThatWasMadeBeforeHandlesLeftIsNotKnown) {
  for (const Sectors sectors : {128, 126}) {
    PagePlacement placement(kPageOf128);
    ScriptedDriver driver;
    const auto place = [&](Sectors count) {
      PagePlan plan = placement.plan({count, 0});
      EXPECT_TRUE(plan.gather.empty() || carry_out(plan.gather, driver));
      return placement.commit(plan);
    };
    const PagedBlock leaves = place(256);
    static_cast<void>(place(128));
    PagePlan plan = placement.plan({128, 0});
    const PagedBlock stays = place(128);
    placement.freed(leaves);
    placement.settle(leaves);
    EXPECT_GT(give_back(placement, driver, 2), 0);
    ASSERT_TRUE(carry_out(plan.gather, driver));
    const PagedBlock late = placement.commit(plan);
    placement.freed(late);
    placement.settle(late);
    EXPECT_EQ(place(256).address, leaves.address) << "it is where the other was";
    placement.freed(stays);
    placement.settle(stays);
    EXPECT_EQ(placement.find_known({sectors, 0}), PlacementLog::kNone);
    EXPECT_EQ(placement.find_larger({sectors, 0}), PlacementLog::kNone);
    static_cast<void>(place(sectors));
    placement.audit();
  }
}

// A place that was found beside a block with less than its place may have what that block lacks.
TEST_F(PageShortcutPartsTest, APlaceBesideAPartOfAPlaceIsNotTakenUnseen) {
  const auto pass = [&](Sectors first, Sectors last) {
    const PagedBlock part = allocate(first);
    const PagedBlock other = allocate(300);
    const bool is_known = placement_.find_larger({last, 0}) != PlacementLog::kNone;
    const PagedBlock behind = allocate(last);
    const Sectors at = behind.address - part.address;
    for (const PagedBlock& block : {behind, other, part}) release(block);
    return std::pair(is_known, at);
  };
  const PagedBlock first = allocate(100);
  static_cast<void>(allocate(28));  // so that nothing goes on behind it
  release(first);
  release(allocate(100));
  release(allocate(90));
  EXPECT_EQ(pass(90, 10), (std::pair<bool, Sectors>(false, 90))) << "what the part left";
  const auto [is_known, at] = pass(100, 9);
  EXPECT_FALSE(is_known);
  EXPECT_GE(at, 100);
}

}  // namespace
}  // namespace cistern
