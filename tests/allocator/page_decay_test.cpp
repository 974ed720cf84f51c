// How long handles are unused, as looks tell: never longer than they are, and shorter by less than what lies between
// two looks.

#include "allocator/page_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/allocator/naive_bytes.h"
#include "tests/allocator/page_sizes.h"

namespace cistern {
namespace {

class PageDecayTest : public ::testing::Test {
 protected:
  PageDecayTest() { placement_.keep_ages(true); }

  PagedBlock allocate(Sectors sectors, StreamNumber stream = 0) {
    const PageRequest request{sectors, stream};
    PagedBlock block;
    if (const auto known = placement_.take_known(request)) {
      block = *known;
    } else {
      PagePlan plan = placement_.plan(request);
      EXPECT_EQ(plan.kind, PlanKind::placed);
      EXPECT_TRUE(plan.gather.empty() || carry_out(plan.gather, driver_));
      block = placement_.commit(plan);
    }
    placement_.table().for_each_handle([&](PageTable::Handle handle) { last_use_.try_emplace(handle, now_); });
    note_use(block);
    return block;
  }
  void release(const PagedBlock& block) {
    note_use(block);
    placement_.freed(block);
    placement_.settle(block);
  }
  void note_use(const PagedBlock& block) {
    for (Sectors at = block.address; at < block.address + block.sectors; ++at)
      last_use_[placement_.table().handle_at(at)] = now_;
  }
  // Nothing leaves.
  std::set<PageTable::Handle> idle_since(std::int64_t time) {
    const Departure departure = placement_.leave_idle(time, all_);
    std::set<PageTable::Handle> handles;
    for (const Departure::Leaving& leaving : departure.handles) handles.insert(leaving.handle);
    placement_.left(departure);
    return handles;
  }

  PagePlacement placement_{kPageOf128};
  ScriptedDriver driver_;
  std::map<PageTable::Handle, std::int64_t> last_use_;
  const std::vector<bool> all_ = {true, true, true};
  std::int64_t now_ = 0;
};

TEST_F(PageDecayTest, AgesAreRightWithinALook) {
  constexpr std::int64_t kLook = 10;
  constexpr std::int64_t kAge = 60;
  std::mt19937_64 random(11);
  std::vector<PagedBlock> live;
  std::size_t found = 0;
  for (now_ = 1; now_ < 20000; ++now_) {
    const bool is_quiet = now_ / 300 % 2 == 0;  // few blocks, so that much is free for long
    const auto sectors = static_cast<Sectors>(1 + random() % (is_quiet ? 100 : 1 + random() % 2000));
    live.push_back(allocate(sectors, static_cast<StreamNumber>(random() % 3)));
    while (live.size() > (is_quiet ? 3U : 25U)) {
      const std::size_t at = random() % live.size();
      release(live[at]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    }
    if (now_ % kLook != 0) continue;
    placement_.look_for_idle(now_);
    if (random() % 3 != 0) continue;
    const bool has_some = placement_.has_idle(now_ - kAge);
    const std::set<PageTable::Handle> idle = idle_since(now_ - kAge);
    ASSERT_EQ(has_some, !idle.empty());
    found += idle.size();
    placement_.table().for_each_handle([&](PageTable::Handle handle) {
      const bool is_free =
          placement_.free_runs().is_free(placement_.table().home_of(handle), placement_.table().sectors_of(handle));
      const std::int64_t unused = now_ - last_use_.at(handle);
      if (idle.contains(handle)) {
        ASSERT_TRUE(is_free && unused >= kAge) << "unused for " << unused;
      } else {
        ASSERT_FALSE(is_free && unused >= kAge + kLook) << "unused for " << unused;
      }
    });
  }
  EXPECT_GT(found, 1000U);
  placement_.audit();
}

TEST_F(PageDecayTest, ABlockThatCameAndWentBetweenLooksUsedItsHandles) {
  release(allocate(4 * 128));
  placement_.look_for_idle(10);
  placement_.look_for_idle(20);
  EXPECT_EQ(idle_since(10).size(), 4U);
  release(allocate(4 * 128));
  EXPECT_TRUE(idle_since(10).empty()) << "at once";
  placement_.look_for_idle(30);
  EXPECT_TRUE(idle_since(20).empty());
  EXPECT_EQ(idle_since(30).size(), 4U);
}

TEST_F(PageDecayTest, WhatWasUsedBeforeAgesWereKeptCountsAsUsed) {
  placement_.keep_ages(false);
  release(allocate(128));
  placement_.look_for_idle(10);
  release(allocate(128));
  static_cast<void>(placement_.free_runs());  // now they know
  placement_.keep_ages(true);
  EXPECT_FALSE(placement_.has_idle(10));
  placement_.look_for_idle(20);
  EXPECT_FALSE(placement_.has_idle(10));
  EXPECT_TRUE(placement_.has_idle(20));
}

TEST_F(PageDecayTest, AHandleLeavesIfTheWorkOfAllItsStreamsIsOver) {
  const PagedBlock first = allocate(64, 0);
  const PagedBlock second = allocate(64, 1);
  const PagedBlock third = allocate(128, 1);
  for (const PagedBlock& block : {first, second, third}) release(block);
  const std::size_t handles = static_cast<std::size_t>(placement_.table().pages());
  placement_.look_for_idle(1);
  EXPECT_TRUE(placement_.leave_idle(1, {}).empty());
  const Departure of_one = placement_.leave_idle(1, {false, true});
  for (const FreeRun& run : of_one.taken) EXPECT_EQ(run.stream, 1);
  EXPECT_LT(of_one.handles.size(), handles);
  EXPECT_FALSE(of_one.empty());
  placement_.left(of_one);
  EXPECT_EQ(idle_since(1).size(), handles);
}

TEST_F(PageDecayTest, WhatLeavesDoesNotRetireMeanwhile) {
  std::vector<PagedBlock> parts;
  for (int i = 0; i < 6; ++i) parts.push_back(allocate(128));
  for (const std::size_t i : {0U, 2U, 4U}) release(parts[i]);
  release(allocate(3 * 128));  // the three, mapped once more
  placement_.begin_retirement();
  ASSERT_TRUE(placement_.retires());
  const Departure departure = placement_.leave(PagePlacement::kNoLimit);
  ASSERT_EQ(departure.handles.size(), 3U);
  EXPECT_TRUE(placement_.take_retirees(100).empty());
  placement_.left(departure);
  placement_.audit();
}

}  // namespace
}  // namespace cistern
