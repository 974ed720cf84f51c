// The bound of docs/paged-policy.md, and that nothing is refused that could be had: after every operation of random
// programs and of such as are made to fragment.

#include "allocator/page_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "tests/allocator/naive_bytes.h"
#include "tests/allocator/page_sizes.h"
#include "tests/allocator/paged_bound.h"

namespace cistern {
namespace {

class PagedBoundTest : public ::testing::Test {
 protected:
  struct Live {
    int id;
    PagedBlock block;
  };

  // False: it is refused, and nothing could have served it.
  bool allocate(Sectors sectors, StreamNumber stream = 0) {
    const PageRequest request{sectors, stream};
    std::optional<PagedBlock> block = placement_.take_known(request);
    if (!block) {
      auto known = placement_.plan_known(request);
      PagePlan plan = known ? *std::move(known) : placement_.plan(request);
      if (plan.kind != PlanKind::placed) {
        const std::int64_t more = std::max<std::int64_t>(0, limit_ - placement_.table().pages());
        EXPECT_FALSE(bytes_.could_serve(placement_.table(), sectors, more)) << sectors << " sectors were refused";
        return false;
      }
      EXPECT_TRUE(plan.gather.empty() || carry_out(plan.gather, driver_));
      block = placement_.commit(plan);
    }
    bytes_.arrive(placement_.table(), *block, next_);
    live_.push_back({next_++, *block});
    check();
    return true;
  }
  void free(std::size_t at) {
    const Live gone = live_[at];
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(at));
    bytes_.leave(placement_.table(), gone.block, gone.id);
    placement_.freed(gone.block);
    placement_.settle(gone.block);
    check();
  }
  void free_all() {
    while (!live_.empty()) free(live_.size() - 1);
  }
  void limit(std::int64_t pages) { placement_.set_page_limit(limit_ = pages); }

  void check() {
    bound_.note(bytes_.live(), bytes_.pages_in_use());
    const std::int64_t pages = placement_.table().pages();
    ASSERT_LE(pages, bound_.most(pages));
  }

  PagePlacement placement_{kPageOf128};
  ScriptedDriver driver_;
  NaiveBytes bytes_{kPageOf128};
  std::vector<Live> live_;
  int next_ = 0;
  PagedBound bound_{kPageOf128};
  std::int64_t limit_ = PagePlacement::kNoLimit;
};

TEST_F(PagedBoundTest, RandomProgramsKeepToIt) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    std::mt19937_64 random(seed);
    const std::uint64_t streams = seed % 3 == 0 ? 3 : 1;
    for (int i = 0; i < 500; ++i) {
      if (random() % 5 < 3 || live_.empty())
        allocate(static_cast<Sectors>(1 + random() % (1 + random() % 3000)),
                 static_cast<StreamNumber>(random() % streams));
      else
        free(random() % live_.size());
      if (HasFatalFailure()) return;
    }
    free_all();
  }
}

// What retires gives no room where no block waits.
TEST_F(PagedBoundTest, ProgramsWhoseMappingsRetireKeepToIt) {
  std::mt19937_64 random(20261129);
  int retired = 0;
  for (int i = 0; i < 4000 && !HasFatalFailure(); ++i) {
    if (live_.size() < 30 || random() % 2 == 0)
      allocate(static_cast<Sectors>(1 + random() % (1 + random() % 3000)));
    else
      free(random() % live_.size());
    while (live_.size() > 40) free(random() % live_.size());
    if (i % 200 != 199) continue;
    placement_.begin_retirement();
    std::vector<PagePlacement::Retiree> all = placement_.take_retirees(1000000);
    for (PagePlacement::Retiree& one : all) {
      driver_.unmap(one.handle, one.address);
      one.is_gone = true;
    }
    retired += static_cast<int>(all.size());
    if (!all.empty()) placement_.retired(all);
  }
  EXPECT_GT(retired, 100);
  placement_.audit();
}

// Every second block of one size goes, and the next size fits into none of the holes.
TEST_F(PagedBoundTest, SizesThatGrowKeepToIt) {
  for (Sectors sectors = 20; sectors < 1200 && !HasFatalFailure(); sectors += sectors / 3) {
    for (int i = 0; i < 40; ++i) allocate(sectors);
    for (std::size_t i = live_.size(); i > 1 && live_.size() > 60; i -= 2) free(i - 2);
  }
}

// Robson's program: blocks of 2^i, of which those stay that lie at one offset.
TEST_F(PagedBoundTest, BlocksThatStayAtOneOffsetKeepToIt) {
  constexpr Sectors kLive = 40 * 128;
  Sectors size = 1;
  for (int round = 0; round < 10 && !HasFatalFailure(); ++round, size *= 2) {
    for (std::size_t i = live_.size(); i-- > 0;)
      if (live_[i].block.address % (2 * size) != size - 1) free(i);
    while (bytes_.live() + size <= kLive) allocate(size);
  }
}

TEST_F(PagedBoundTest, ASawtoothKeepsToIt) {
  std::mt19937_64 random(7);
  for (int tooth = 0; tooth < 6 && !HasFatalFailure(); ++tooth) {
    for (int i = 0; i < 120; ++i) allocate(static_cast<Sectors>(10 + random() % 700));
    while (live_.size() > 30) free(random() % live_.size());
  }
}

// Handles of two pages are too large for a window of one between fragments: they serve before another is created.
TEST_F(PagedBoundTest, NoWindowCreatesPagesBesideFreeHandles) {
  allocate(88);
  allocate(192 * 128);  // in handles of two pages
  allocate(60);
  allocate(68);
  allocate(256);  // what was created ahead for small ones
  free(2);
  free(1);
  const std::int64_t pages = placement_.table().pages();
  allocate(192);
  EXPECT_EQ(placement_.table().pages(), pages);
}

// The tail with which the block begins is the end of a handle whose beginning is free, too, as another stream's.
TEST_F(PagedBoundTest, AHandleThatTheTailReachesIntoIsNotGatheredAgain) {
  allocate(60);
  allocate(68);
  limit(1);
  free(0);
  allocate(50, 1);
  free(1);
  free(0);
  limit(PagePlacement::kNoLimit);
  allocate(17 * 128 - 40);
  EXPECT_EQ(placement_.table().pages(), 18);
  placement_.audit();
}

TEST_F(PagedBoundTest, NothingIsRefusedThatCouldBeHad) {
  int refused = 0;
  int served_at_limit = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    std::mt19937_64 random(seed);
    const std::uint64_t streams = 1 + seed % 3;
    limit(placement_.table().pages() + static_cast<std::int64_t>(random() % 20));
    for (int i = 0; i < 200; ++i) {
      const bool is_full = placement_.table().pages() >= limit_;
      if (random() % 7 < 4 || live_.empty()) {
        const bool is_served = allocate(static_cast<Sectors>(1 + random() % (1 + random() % 900)),
                                        static_cast<StreamNumber>(random() % streams));
        if (!is_served) ++refused;
        if (is_served && is_full) ++served_at_limit;
      } else {
        free(random() % live_.size());
      }
      if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
    placement_.audit();
    if (seed % 5 == 0) free_all();
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(served_at_limit, 1000);
}

}  // namespace
}  // namespace cistern
