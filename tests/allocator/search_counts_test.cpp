// Searches that streams count at once: every order of two threads' steps, to a bound.
#include "allocator/search_counts.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>

#include "tests/allocator/every_order.h"
#include "tests/races/choices.h"

namespace cistern {
namespace {

using testing::in_every_order;

TEST(SearchCounts, AreKeptByKind) {
  SearchCounts searches;
  EXPECT_FALSE(searches.has_any());
  searches.count(PoolKind::large, true);
  searches.count(PoolKind::large, false);
  EXPECT_TRUE(searches.has_any());
  EXPECT_EQ(searches.of(PoolKind::large), 2U);
  EXPECT_EQ(searches.of(PoolKind::small), 0U);
}

struct SearchingWorld {
  void search() {
    for (int i = 0; i < 3; ++i) counts.count(PoolKind::large, false);
  }

  BasicSearchCounts<testing::DelayingProcessors> counts;
};

TEST(SearchCountsInterleaving, NoneIsLost) {
  const std::size_t orders = in_every_order(
      6, [] { return std::make_unique<SearchingWorld>(); }, [](SearchingWorld& world) { world.search(); },
      [](SearchingWorld& world) { world.search(); },
      [](SearchingWorld& world, const Choices& order) { EXPECT_EQ(world.counts.of(PoolKind::large), 6U) << order; });
  EXPECT_GT(orders, 10U);
}

}  // namespace
}  // namespace cistern
