// How what may come below the peaks is shared out among ledgers.

#include "stats/block_ledger.h"

#include <gtest/gtest.h>

namespace cistern {
namespace {

// One that has nothing, and had so many blocks at most.
BlockLedger ledger_that_had(int blocks) {
  MemoryStats stats;
  BlockLedger ledger;
  for (int i = 0; i < blocks; ++i) static_cast<void>(ledger.came(PoolKind::small, 512, 512, {}));
  ledger.close(stats);
  ledger.begin(BlockLedger::Room(), false);
  for (int i = 0; i < blocks; ++i) static_cast<void>(ledger.went(PoolKind::small, 512, 512, {}));
  ledger.close(stats);
  return ledger;
}
// Both begin anew where so many blocks may come; if one asks, that is the first.
void share_out(BlockLedger& first, BlockLedger& second, int blocks, bool is_asked) {
  MemoryStats stats;
  for (PoolStat* stat :
       {&stats.allocation, &stats.active, &stats.allocated_bytes, &stats.active_bytes, &stats.requested_bytes})
    for (Stat* part : {&stat->small_pool, &stat->all}) part->peak = 512LL * blocks;
  for (PoolStat* stat : {&stats.allocation, &stats.active})
    for (Stat* part : {&stat->small_pool, &stat->all}) part->peak = blocks;
  BlockLedger::Room room;
  room.add(first, is_asked);
  room.add(second, false);
  room.share_out(stats);
  first.begin(room, is_asked);
  second.begin(room, false);
}
int room_of(BlockLedger ledger) {
  int blocks = 0;
  while (ledger.came(PoolKind::small, 512, 512, {})) ++blocks;
  return blocks;
}

TEST(RoomBelowPeaks, WhereThereIsTooLittleWhoAsksGetsHalfAndTheOtherAFraction) {
  BlockLedger asks = ledger_that_had(100);
  BlockLedger other = ledger_that_had(100);
  share_out(asks, other, 60, true);
  EXPECT_GE(room_of(asks), 30);
  EXPECT_GE(room_of(other), 25);
  EXPECT_LE(room_of(asks) + room_of(other), 60);
}

TEST(RoomBelowPeaks, WhereThereIsEnoughEachGetsWhatItLacks) {
  BlockLedger asks = ledger_that_had(20);
  BlockLedger other = ledger_that_had(100);
  share_out(asks, other, 130, true);
  EXPECT_EQ(room_of(asks), 25);
  EXPECT_EQ(room_of(other), 105);
}

TEST(RoomBelowPeaks, NothingGivesWayWhereNobodyAsks) {
  BlockLedger first = ledger_that_had(100);
  BlockLedger second = ledger_that_had(0);
  share_out(first, second, 0, false);
  share_out(first, second, 100, false);
  EXPECT_EQ(room_of(first), 100);
}

}  // namespace
}  // namespace cistern
