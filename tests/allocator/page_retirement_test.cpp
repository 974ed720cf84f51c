// Mappings that nobody uses go: what a long program leaves mapped, and the addresses that it takes, have a bound.

#include "allocator/page_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/allocator/placement_case.h"

namespace cistern {
namespace {

class PageRetirementTest : public PlacementCase {
 protected:
  // Of a device with half as many pages: 4096 pages of addresses may show those of little memory.
  static constexpr std::int64_t kArenaPages = 2048;

  explicit PageRetirementTest(std::int64_t arena_pages = kArenaPages) : PlacementCase(arena_pages) {}

  PagedBlock allocate(Sectors sectors, StreamNumber stream = 0) {
    const PageRequest request{sectors, stream};
    const auto known = placement_.take_known(request);
    return known ? *known : place(request);
  }
  // As a heap does with each request, but that its events are done at once.
  void retire(std::size_t most = 16) {
    if (placement_.may_begin_retirement()) {
      placement_.begin_retirement();
      ++begun_;
    }
    std::vector<PagePlacement::Retiree> batch = placement_.take_retirees(most);
    for (PagePlacement::Retiree& one : batch) {
      driver_.unmap(one.handle, one.address);
      one.is_gone = true;
    }
    if (!batch.empty()) placement_.retired(batch);
  }
  [[nodiscard]] std::int64_t slots() const {
    std::int64_t all = 0;
    for (PageTable::Arena arena = 0; arena < placement_.table().arenas(); ++arena)
      all += placement_.table().slots(arena);
    return all;
  }
  // Of the end of one page and the beginning of another, which are at home elsewhere. The rest of both stays in use.
  PagedBlock allocate_window() {
    const PagedBlock first = allocate(64);
    static_cast<void>(allocate(64));
    static_cast<void>(allocate(64));
    const PagedBlock last = allocate(64);
    release(first);
    release(last);
    placement_.set_page_limit(2);
    const PagedBlock window = allocate(128);
    placement_.set_page_limit(PagePlacement::kNoLimit);
    EXPECT_EQ(placement_.table().mapped_pages(), 4);
    return window;
  }
  void run_until_many_are_mapped(std::vector<PagedBlock>& kept, std::vector<PagedBlock>& others) {
    std::mt19937_64 random(7);
    for (int i = 0; i < 100000 && !placement_.may_begin_retirement(); ++i) {
      const auto sectors = static_cast<Sectors>(1 + random() % (1 + random() % 1000));
      (i % 100 == 0 && kept.size() < 10 ? kept : others).push_back(allocate(sectors));
      if (others.size() < 20) continue;
      const std::size_t at = random() % others.size();
      release(others[at]);
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(at));
    }
    ASSERT_TRUE(placement_.may_begin_retirement());
  }
  void audit() {
    placement_.audit();
    for (const auto& [address, handle] : driver_.mapped)
      ASSERT_TRUE(placement_.table().maps(handle, address)) << "mapped, and the table does not know";
  }

  NaiveBytes bytes_{kPageOf128};
  int begun_ = 0;
};

TEST_F(PageRetirementTest, MappingsAndAddressesHaveABound) {
  struct Live {
    PagedBlock block;
    int id;
  };
  std::mt19937_64 random(20261123);
  std::vector<Live> live;
  for (int i = 0; i < 60000; ++i) {
    while (live.size() > 12 || (!live.empty() && random() % 2 == 0)) {
      const std::size_t at = random() % live.size();
      bytes_.leave(placement_.table(), live[at].block, live[at].id);
      release(live[at].block);
      live[at] = live.back();
      live.pop_back();
    }
    const auto sectors = static_cast<Sectors>(1 + random() % (1 + random() % 900));
    live.push_back({allocate(sectors, static_cast<StreamNumber>(random() % 2)), i});
    bytes_.arrive(placement_.table(), live.back().block, i);
    retire();
    const std::int64_t most = std::max<std::int64_t>(4096, 64 * placement_.table().pages());
    ASSERT_LE(placement_.table().mapped_pages(), most + most / 4) << "operation " << i;
    ASSERT_LE(slots(), 2 * most) << "operation " << i;
    if (i % 5000 == 0) audit();
  }
  EXPECT_GT(begun_, 1);
  audit();
}

// Of much memory fewer mappings show each page: the driver keeps something for each.
TEST_F(PageRetirementTest, MuchMemoryHasFewerMappingsOfAPage) {
  std::mt19937_64 random(20261124);
  std::vector<PagedBlock> live;
  for (int i = 0; i < 8000; ++i) {
    while (live.size() > 12 || (!live.empty() && random() % 2 == 0)) {
      std::swap(live[random() % live.size()], live.back());
      release(live.back());
      live.pop_back();
    }
    live.push_back(allocate(128 * static_cast<Sectors>(1 + random() % 6000)));
    retire(1000000);
    const std::int64_t pages = placement_.table().pages();
    ASSERT_LE(placement_.table().mapped_pages(), 524288 + 8 * pages + 6000) << "operation " << i;
  }
  EXPECT_GT(placement_.table().pages(), 20000) << "of less memory 64 may show each";
  EXPECT_GT(begun_, 1);
  audit();
}

// Steps of 20 sizes, each of whose blocks is freed at once and waits for 21 more requests, as for another stream: every
// one asks when the bytes that it had before are not free.
class WaitingSteps : public PageRetirementTest {
 protected:
  // Returns how often bytes were gathered in the last of so many steps.
  std::int64_t run(int steps, int last) {
    std::int64_t before = 0;
    for (int step = 0; step < steps; ++step) {
      if (step == steps - last) before = gathered();
      for (const Sectors sectors : sizes_) turn(sectors);
    }
    return gathered() - before;
  }
  void turn(Sectors sectors) {
    retire();
    waiting_.push_back(allocate(sectors));
    placement_.freed(waiting_.back());
    if (waiting_.size() <= 21) return;
    placement_.settle(waiting_.front());
    waiting_.erase(waiting_.begin());
  }
  void retire_all() {
    placement_.begin_retirement();
    retire(1000000);
  }
  [[nodiscard]] std::int64_t pages() const { return placement_.table().pages(); }
  [[nodiscard]] std::int64_t gathered() const { return placement_.counts().misses + placement_.counts().chosen; }

  std::vector<PagedBlock> waiting_;
  const std::vector<Sectors> sizes_ = [] {
    std::mt19937_64 random(20261127);
    std::vector<Sectors> sizes;
    for (int i = 0; i < 20; ++i)
      sizes.push_back(128 * (Sectors{1} << random() % 6) + static_cast<Sectors>(random() % 128));
    return sizes;
  }();
};

TEST_F(WaitingSteps, ComeToRestInMoreMemory) {
  run(10, 1);
  const std::int64_t before = pages();
  EXPECT_EQ(run(2000, 100), 0);
  EXPECT_GT(pages(), before * 17 / 16);
  audit();
}

// However often what they know is forgotten.
TEST_F(WaitingSteps, HaveAtMostTwiceTheMemory) {
  run(10, 1);
  const std::int64_t before = pages();
  for (int times = 0; times < 100; ++times) {
    retire_all();
    run(4, 1);
    ASSERT_LE(pages(), 2 * before + 8) << "after " << times;
  }
  EXPECT_GT(pages(), before * 9 / 8);
  audit();
}

// What every stream knew was of less memory.
TEST_F(WaitingSteps, ForgetPlacesWhereTheyGetMore) {
  static_cast<void>(allocate(10, 5));
  release(allocate(20, 5));
  run(4, 1);
  EXPECT_NE(placement_.find_known({20, 5}), PlacementLog::kNone);
  run(300, 1);
  EXPECT_EQ(placement_.find_known({20, 5}), PlacementLog::kNone);
  EXPECT_EQ(begun_, 0) << "that forgets them, too";
}

TEST_F(WaitingSteps, HaveNoMoreWhereLittleWaits) {
  const PagedBlock most = allocate(128 * 20'000);
  run(10, 1);
  const std::int64_t before = pages();
  run(600, 1);
  EXPECT_LT(pages(), before * 129 / 128);
  release(most);
  audit();
}

TEST_F(WaitingSteps, HaveNoMoreOnceMemoryWasGivenBack) {
  run(10, 1);
  const std::int64_t before = pages();
  run(400, 1);
  ASSERT_GT(pages(), before * 17 / 16);
  for (const PagedBlock& block : waiting_) placement_.settle(block);
  waiting_.clear();
  give_back(placement_, driver_, PagePlacement::kNoLimit);
  ASSERT_EQ(pages(), 0);
  run(10, 1);
  EXPECT_LT(pages(), before * 17 / 16);
  audit();
}

// Of a device with memory for more.
class PageRetirementOfLargeDevice : public PageRetirementTest {
 protected:
  PageRetirementOfLargeDevice() : PageRetirementTest(PagePlacement::kNoLimit) {}
};

TEST_F(PageRetirementOfLargeDevice, MayHaveTwiceTheMappings) {
  std::mt19937_64 random(20261130);
  std::vector<PagedBlock> live;
  while (!placement_.may_begin_retirement()) {
    if (live.size() > 12) {
      std::swap(live[random() % live.size()], live.back());
      release(live.back());
      live.pop_back();
    }
    live.push_back(allocate(128 * static_cast<Sectors>(1 + random() % 100)));
  }
  const std::int64_t pages = placement_.table().pages();
  EXPECT_GT(pages, 100);
  EXPECT_GT(placement_.table().mapped_pages(), 128 * pages);
  EXPECT_LE(placement_.table().mapped_pages(), 128 * pages + 100);
  audit();
}

TEST_F(PageRetirementTest, WhatIsUsedStays) {
  const PagedBlock window = allocate_window();
  std::vector<PagedBlock> kept;
  std::vector<PagedBlock> others;
  run_until_many_are_mapped(kept, others);
  const std::int64_t mapped = placement_.table().mapped_pages();
  retire(100000);
  EXPECT_LT(placement_.table().mapped_pages(), mapped / 4);
  EXPECT_FALSE(placement_.may_begin_retirement());
  for (const PagedBlock& block : kept) EXPECT_TRUE(placement_.table().is_mapped(block.address, block.sectors));
  for (const PagedBlock& block : others) EXPECT_TRUE(placement_.table().is_mapped(block.address, block.sectors));
  EXPECT_TRUE(placement_.table().is_mapped(window.address, window.sectors));
  audit();
  release(window);
  for (const PagedBlock& block : kept) release(block);
  for (const PagedBlock& block : others) release(block);
  audit();
  EXPECT_EQ(placement_.free_runs().sectors() + 128, kPageOf128.sectors(placement_.table().pages()));
}

TEST_F(PageRetirementTest, WhatTheDriverRefusesToUnmapStaysMapped) {
  std::vector<PagedBlock> kept;
  std::vector<PagedBlock> others;
  run_until_many_are_mapped(kept, others);
  placement_.begin_retirement();
  const std::int64_t mapped = placement_.table().mapped_pages();
  while (placement_.retires()) placement_.retired(placement_.take_retirees(64));
  EXPECT_EQ(placement_.table().mapped_pages(), mapped);
  EXPECT_FALSE(placement_.may_begin_retirement()) << "nor is it asked for at once again";
  audit();
}

TEST(PageTableHoleTest, AddressesInWhichNothingIsMappedServeAgain) {
  PageTable table(kPageOf128);
  const PageTable::Arena arena = table.add_arena();
  std::vector<PageTable::Handle> handles;
  const Sectors begin = table.reserve(arena, 6);
  for (int i = 0; i < 6; ++i) {
    handles.push_back(table.add_handle(1));
    table.map(handles.back(), begin + kPageOf128.sectors(i));
  }
  EXPECT_FALSE(table.reserve_hole(arena, 1));
  table.unmap(handles[1], begin + kPageOf128.sectors(1));
  table.unmap(handles[3], begin + kPageOf128.sectors(3));
  table.unmap(handles[4], begin + kPageOf128.sectors(4));
  EXPECT_EQ(table.mapped_pages(), 3);
  EXPECT_FALSE(table.reserve_hole(arena, 3)) << "they do not lie side by side";
  EXPECT_EQ(table.reserve_hole(arena, 2), begin + kPageOf128.sectors(3));
  EXPECT_FALSE(table.reserve_hole(arena, 2)) << "it is reserved";
  EXPECT_EQ(table.reserve_hole(arena, 1), begin + kPageOf128.sectors(1));
  table.cancel(begin + kPageOf128.sectors(3), 2);
  EXPECT_EQ(table.reserve_hole(arena, 2), begin + kPageOf128.sectors(3));
  table.audit();
}

}  // namespace
}  // namespace cistern
