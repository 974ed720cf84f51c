// How often frees stand where that they stand hides them from others.

#include <gtest/gtest.h>

#include "allocator/lazy_free.h"

namespace cistern {
namespace {

// So many blocks are handed out before the next one's free may stand.
int rest(StandingWorth& worth) {
  int blocks = 0;
  while (!worth.tries()) ++blocks;
  return blocks;
}

TEST(StandingWorthTest, EachFreeThatStoodInVainIsFollowedByALongerRest) {
  StandingWorth worth;
  EXPECT_EQ(rest(worth), 0);
  for (const int expected : {1, 2, 4, 8, 16}) {
    worth.ended(0);
    EXPECT_EQ(rest(worth), expected);
  }
  for (int i = 0; i < 20; ++i) worth.ended(0);
  const int longest = rest(worth);
  worth.ended(0);
  EXPECT_EQ(rest(worth), longest);
}

TEST(StandingWorthTest, OneThatCameBackMakesUpForAllBefore) {
  StandingWorth worth;
  for (int i = 0; i < 10; ++i) worth.ended(0);
  static_cast<void>(rest(worth));
  worth.ended(1);
  EXPECT_EQ(rest(worth), 0);
  worth.ended(0);
  EXPECT_EQ(rest(worth), 1);
}

TEST(LazyFreeTurns, ThoseThatTheRecurrenceWasToldOfAreTold) {
  Block block;
  block.address = 512;
  block.requested = 100;
  LazyFree lazy;
  lazy.begin(&block, {}, false);
  for (const bool is_told : {true, false, true, false, false}) {
    lazy.go(is_told);
    lazy.come_back();
    lazy.tell();
  }
  EXPECT_EQ(lazy.turns(), 5);
  EXPECT_EQ(lazy.untold_turns(), 3);
  lazy.end_turns();
  EXPECT_EQ(lazy.untold_turns(), 0);
}

}  // namespace
}  // namespace cistern
