// Ledgers of streams that count apart: the figures are those of one counter that sees everything.

#include "stats/recorder.h"

#include "tests/moved_stat.h"
#include "tests/property.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace cistern {
namespace {

[[maybe_unused]] const bool stream_ledgers_configured = configure_properties("StreamLedgerProperties", 5000, 400);

// Counters that are raised at each step.
struct Plain {
  Stat blocks;
  Stat bytes;
  Stat active;  // those that wait for other streams, too
  Stat active_bytes;
  Stat split_bytes;
  void forget_peaks() {
    for (Stat* stat : {&blocks, &bytes, &active, &active_bytes, &split_bytes}) stat->peak = stat->current;
  }
};

struct World {
  static constexpr std::size_t kStreams = 3;
  World() {
    recorder.reserve_streams(kStreams);
    // Blocks are cut from splits.
    const InactiveSplitChange splits{1 << 20, std::int64_t{1} << 30};
    recorder.block_allocated(PoolKind::small, 0, 0, splits, false, {});
    for (Stat* stat : {&plain.blocks, &plain.active}) move(*stat, 1);
    move(plain.split_bytes, splits.bytes);
  }
  // Whether the stream's ledger has room for it, with what others lend.
  template <class Count>
  bool fits(StreamLedger& ledger, const Count& counts) {
    if (!ledger.is_apart) return false;
    if (counts()) return true;
    if (!lends) return false;
    const std::int64_t peaks = sum_of_peaks();
    const bool is_lent = recorder.grant_room(ledger);
    RC_ASSERT(sum_of_peaks() == peaks);
    RC_ASSERT(counts() == is_lent);
    if (!is_lent) ++refused;
    return is_lent;
  }
  [[nodiscard]] std::int64_t sum_of_peaks() const {
    const MemoryStats stats = recorder.stats();
    std::int64_t sum = 0;
    for (const PoolStat* stat : {&stats.allocation, &stats.allocated_bytes, &stats.active, &stats.active_bytes,
                                 &stats.requested_bytes, &stats.inactive_split, &stats.inactive_split_bytes})
      for (const Stat* part : {&stat->all, &stat->small_pool}) sum += part->peak;
    return sum;
  }
  // As a stream does that has its own lock alone, and leaves to the recorder what may move a peak.
  void allocate(std::size_t stream, std::int64_t bytes, InactiveSplitChange split) {
    StreamLedger& ledger = ledgers[stream];
    BlockLedger& counts = ledger.shares ? recorder.shared() : ledger.blocks;
    const auto comes = [&] {
      if (counts.came(PoolKind::small, bytes, bytes, split)) return true;
      counts.take_back(PoolKind::small, bytes, bytes, split);
      return false;
    };
    if (!fits(ledger, comes)) {
      recorder.block_allocated(PoolKind::small, bytes, bytes, split, false, {kUntagged, &ledger});
    } else if (ledger.shares) {
      ledger.live += bytes;
    }
    live[stream].push_back({bytes, split});
    move(plain.blocks, 1);
    move(plain.bytes, bytes);
    move(plain.active, 1);
    move(plain.active_bytes, bytes);
    move(plain.split_bytes, split.bytes);
  }
  void free(std::size_t stream, std::size_t place) {
    StreamLedger& ledger = ledgers[stream];
    const std::int64_t bytes = live[stream][place].first;
    const InactiveSplitChange came_with = live[stream][place].second;
    const InactiveSplitChange split{-came_with.count, -came_with.bytes};
    BlockLedger& counts = ledger.shares ? recorder.shared() : ledger.blocks;
    const auto goes = [&] {
      if (counts.went(PoolKind::small, bytes, bytes, split)) return true;
      counts.take_back_free(PoolKind::small, bytes, bytes, split);
      return false;
    };
    if (!fits(ledger, goes)) {
      recorder.freed(PoolKind::small, bytes, bytes, split, false, {kUntagged, &ledger});
    } else if (ledger.shares) {
      ledger.live -= bytes;
    }
    live[stream].erase(live[stream].begin() + static_cast<std::ptrdiff_t>(place));
    move(plain.blocks, -1);
    move(plain.bytes, -bytes);
    move(plain.active, -1);
    move(plain.active_bytes, -bytes);
    move(plain.split_bytes, split.bytes);
  }
  // The same in two steps.
  void request_free(std::size_t stream, std::size_t place) {
    const auto [bytes, came_with] = live[stream][place];
    recorder.free_requested(PoolKind::small, bytes, false, {kUntagged, &ledgers[stream]});
    waiting.push_back({stream, bytes, {-came_with.count, -came_with.bytes}, recorder.grants()});
    live[stream].erase(live[stream].begin() + static_cast<std::ptrdiff_t>(place));
    move(plain.blocks, -1);
    move(plain.bytes, -bytes);
  }
  void complete_free(std::size_t place) {
    const Waiting free = waiting[place];
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(place));
    recorder.free_completed(PoolKind::small, free.bytes, free.bytes, free.split, {kUntagged, &ledgers[free.stream]},
                            free.grant);
    move(plain.active, -1);
    move(plain.active_bytes, -free.bytes);
    move(plain.split_bytes, free.split.bytes);
  }
  void compare() const {
    const MemoryStats stats = recorder.stats();
    RC_ASSERT(stats.allocation.all == plain.blocks);
    RC_ASSERT(stats.active.small_pool == plain.active);
    RC_ASSERT(stats.active_bytes.all == plain.active_bytes);
    RC_ASSERT(stats.allocated_bytes.all == plain.bytes);
    RC_ASSERT(stats.requested_bytes.small_pool == plain.active_bytes);
    RC_ASSERT(stats.inactive_split_bytes.all == plain.split_bytes);
    std::int64_t sum = 0;
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      std::int64_t bytes = 0;
      for (const auto& block : live[stream]) bytes += block.first;
      RC_ASSERT(ledgers[stream].live_bytes() == bytes);
      sum += bytes;
    }
    RC_ASSERT(recorder.live_bytes() == sum);
  }

  Recorder recorder;
  std::array<StreamLedger, kStreams> ledgers;
  std::array<std::vector<std::pair<std::int64_t, InactiveSplitChange>>, kStreams> live;
  struct Waiting {
    std::size_t stream = 0;
    std::int64_t bytes = 0;
    InactiveSplitChange split;
    std::uint64_t grant = 0;
  };
  std::vector<Waiting> waiting;
  Plain plain;
  bool lends = false;
  int refused = 0;
};

RC_GTEST_PROP(StreamLedgerProperties, FiguresAreThoseOfOneCounter, ()) {
  World world;
  world.lends = *rc::gen::arbitrary<bool>();
  const auto steps = *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 100000));
  for (const std::size_t step : steps) {
    const std::size_t stream = step % 7 < 4 ? 0 : step % World::kStreams;
    auto& live = world.live[stream];
    const std::size_t kind = step % 100;
    if (kind < 45) {
      const auto bytes = static_cast<std::int64_t>(step / 100 % 9 + 1) * 512;
      // Cut from a free block, or one, so that its free may be the one that moves a peak; or all of a segment.
      const InactiveSplitChange splits[] = {{1, 4096 - bytes / 2}, {-1, -bytes}, {}};
      world.allocate(stream, bytes, splits[step % 3]);
    } else if (kind < 75 && !live.empty()) {
      world.free(stream, step / 100 % live.size());
    } else if (kind < 83 && !live.empty()) {
      world.request_free(stream, step / 100 % live.size());
    } else if (kind < 90 && !world.waiting.empty()) {
      world.complete_free(step / 100 % world.waiting.size());
    } else if (kind < 92) {
      StreamLedger& ledger = world.ledgers[stream];
      if (ledger.shares)
        world.recorder.end_sharing(ledger);
      else if (ledger.is_apart)
        world.recorder.share(ledger);
    } else if (kind < 94) {
      StreamLedger& ledger = world.ledgers[stream];
      if (ledger.is_apart)
        world.recorder.join(ledger);
      else
        world.recorder.part(ledger);
    } else if (kind == 94) {
      world.recorder.reset_peaks();
      world.plain.forget_peaks();
    } else {
      world.compare();
    }
  }
  world.compare();
}

// Two that never hold at the same time: what one gave back is not the other's to take unseen.
TEST(StreamLedgers, APeakThatNobodyReachedIsNotThere) {
  World world;
  world.recorder.part(world.ledgers[0]);
  world.recorder.part(world.ledgers[1]);
  for (int i = 0; i < 10; ++i)
    for (const std::size_t stream : {std::size_t{0}, std::size_t{1}}) {
      world.allocate(stream, 4096, {});
      world.free(stream, 0);
    }
  EXPECT_EQ(world.recorder.stats().allocated_bytes.all.peak, 4096);
  world.allocate(0, 4096, {});
  world.allocate(1, 512, {});
  EXPECT_EQ(world.recorder.stats().allocated_bytes.all.peak, 4608);
}

// Room that another stream has is lent where that suffices, and no peak moves for it; for what needs a higher peak
// there is none.
TEST(StreamLedgers, RoomIsLentUpToThePeaksAndNotBeyond) {
  World world;
  world.lends = true;
  for (const std::size_t stream : {std::size_t{0}, std::size_t{1}}) world.recorder.part(world.ledgers[stream]);
  const auto hold = [&](std::size_t stream, int blocks) {
    for (int i = 0; i < blocks; ++i) world.allocate(stream, 512, {});
  };
  const auto let_go = [&](std::size_t stream) {
    while (!world.live[stream].empty()) world.free(stream, world.live[stream].size() - 1);
  };
  hold(0, 100);
  const int beyond = std::exchange(world.refused, 0);
  EXPECT_GE(beyond, 50);
  for (int turn = 0; turn < 5; ++turn) {
    let_go(0);
    hold(1, 60);
    hold(0, 40);
    let_go(1);
    hold(0, 60);
  }
  EXPECT_EQ(world.refused, 0);
  EXPECT_EQ(world.recorder.stats().allocation.all.peak, 101);
  hold(1, 1);
  EXPECT_EQ(world.refused, 1);
  EXPECT_EQ(world.recorder.stats().allocation.all.peak, 102);
}

// It has no part while it rests, and what it needs it gets nevertheless.
TEST(StreamLedgers, WhoRestedForLongIsLentWhatItNeeds) {
  World world;
  world.lends = true;
  for (const std::size_t stream : {std::size_t{0}, std::size_t{1}}) world.recorder.part(world.ledgers[stream]);
  for (int i = 0; i < 10; ++i) world.allocate(0, 512, {});
  for (int i = 0; i < 5; ++i) world.free(0, 0);
  for (std::uint32_t i = 0; i < 2 * BlockLedger::kStreamsRest; ++i) {
    world.allocate(0, 512, {});
    world.free(0, 0);
    world.recorder.reset_accumulated();  // written down, and lent anew
  }
  world.refused = 0;
  for (int i = 0; i < 5; ++i) world.allocate(1, 512, {});
  EXPECT_EQ(world.refused, 0);
  EXPECT_EQ(world.recorder.stats().allocation.all.peak, 11);
}

// A world of which so many streams are apart, where there is room for so many blocks of 512 bytes below the peaks.
void give_room(World& world, std::size_t streams, int blocks) {
  for (std::size_t stream = 0; stream < streams; ++stream) world.recorder.part(world.ledgers[stream]);
  for (int i = 0; i < blocks; ++i) world.allocate(0, 512, {});
  for (int i = 0; i < blocks; ++i) world.free(0, 0);
}
void hold_and_free(World& world, std::size_t stream, int blocks) {
  for (int i = 0; i < blocks; ++i) world.allocate(stream, 512, {});
  for (int i = 0; i < blocks; ++i) world.free(stream, 0);
}

TEST(StreamLedgers, StreamsThatTakeTurnsKeepTheirPartsWhileTheyRest) {
  World world;
  give_room(world, World::kStreams, 90);
  for (int turn = 0; turn < 3; ++turn)
    for (std::size_t stream = 0; stream < World::kStreams; ++stream) hold_and_free(world, stream, 20);
  const std::uint64_t grants = world.recorder.grants();
  for (int turn = 0; turn < 10; ++turn)
    for (std::size_t stream = 0; stream < World::kStreams; ++stream) hold_and_free(world, stream, 20);
  EXPECT_EQ(world.recorder.grants(), grants);
}

TEST(StreamLedgers, OneThatRestsForLongLeavesItsPartToOthers) {
  World world;
  give_room(world, 2, 0);
  for (int i = 0; i < 50; ++i) world.allocate(1, 512, {});
  hold_and_free(world, 0, 100);
  for (int i = 0; i < 50; ++i) world.free(1, 0);
  for (int i = 0; i < 100; ++i) {
    hold_and_free(world, 0, 1);
    world.recorder.reset_accumulated();  // a grant that nobody asks for
  }
  const std::uint64_t grants = world.recorder.grants();
  hold_and_free(world, 0, 150);
  EXPECT_EQ(world.recorder.grants(), grants);
}

TEST(StreamLedgers, SplitsThatCameAndWentAloneAreCounted) {
  World world;
  give_room(world, 1, 1);
  world.recorder.reset_accumulated();
  BlockLedger& ledger = world.ledgers[0].blocks;
  ASSERT_TRUE(ledger.split(PoolKind::small, {-1, -512}));
  ASSERT_TRUE(ledger.split(PoolKind::small, {1, 512}));
  world.recorder.reset_peaks();
  EXPECT_EQ(world.recorder.stats().inactive_split.all.allocated, 1);
}

// Once both came up to their most at one time each has room for that, whatever the other does.
TEST(StreamLedgers, StreamsThatRepeatTheirOwnWorkNeedNoGrant) {
  World world;
  world.recorder.part(world.ledgers[0]);
  world.recorder.part(world.ledgers[1]);
  constexpr std::array<int, 2> kMost = {300, 40};
  std::array<int, 2> live{};
  const auto move = [&](std::size_t stream, bool up) {
    if (up)
      world.allocate(stream, 512, {});
    else
      world.free(stream, 0);
    live[stream] += up ? 1 : -1;
  };
  for (const std::size_t stream : {std::size_t{0}, std::size_t{1}})
    while (live[stream] < kMost[stream]) move(stream, true);
  // Up and down, at speeds that never fall together for long.
  std::array<bool, 2> rises{};
  const auto run = [&](int steps) {
    for (int step = 0; step < steps; ++step) {
      const std::size_t stream = step % 7 < 4 ? 0 : 1;
      if (live[stream] == 0) rises[stream] = true;
      if (live[stream] == kMost[stream]) rises[stream] = false;
      move(stream, rises[stream]);
    }
  };
  run(5000);
  const std::uint64_t grants = world.recorder.grants();
  run(20000);
  EXPECT_EQ(world.recorder.grants(), grants);
  world.compare();
}

// Who had most and has little now does not keep the others from what they lack.
TEST(StreamLedgers, WhoAsksGetsHalfOfWhatThereIs) {
  World world;
  for (const std::size_t stream : {std::size_t{0}, std::size_t{1}}) world.recorder.part(world.ledgers[stream]);
  hold_and_free(world, 0, 1000);
  hold_and_free(world, 1, 1000);
  for (const std::size_t stream : {std::size_t{0}, std::size_t{1}}) world.allocate(stream, 512, {});
  const std::uint64_t grants = world.recorder.grants();
  for (int i = 0; i < 450; ++i)
    for (const std::size_t stream : {std::size_t{0}, std::size_t{1}}) world.allocate(stream, 512, {});
  EXPECT_LE(world.recorder.grants(), grants + 8);
  world.compare();
}

// Their peaks are forgotten in each step, and what they had is not.
TEST(StreamLedgers, WhatStreamsHadOutlivesTheirPeaks) {
  World world;
  give_room(world, 2, 40);
  const auto step = [&] {
    world.recorder.reset_peaks();
    world.plain.forget_peaks();
    for (int i = 0; i < 20; ++i)
      for (const std::size_t stream : {std::size_t{0}, std::size_t{1}}) world.allocate(stream, 512, {});
    const std::uint64_t grants = world.recorder.grants();
    for (int times = 0; times < 3; ++times) {
      for (const std::size_t stream : {std::size_t{0}, std::size_t{1}})
        for (int i = 0; i < 20; ++i) world.free(stream, 0);
      for (const std::size_t stream : {std::size_t{0}, std::size_t{1}})
        for (int i = 0; i < 20; ++i) world.allocate(stream, 512, {});
    }
    for (const std::size_t stream : {std::size_t{0}, std::size_t{1}})
      for (int i = 0; i < 20; ++i) world.free(stream, 0);
    return world.recorder.grants() - grants;
  };
  for (int i = 0; i < 3; ++i) static_cast<void>(step());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(step(), 0U);
  world.compare();
}

// Blocks that came while a stream slept go while it is awake, and the other way round.
TEST(StreamLedgers, WhatAnotherLedgerSawComeIsNotLacked) {
  World world;
  for (int cycle = 0; cycle < 20; ++cycle) {
    world.recorder.part(world.ledgers[0]);
    for (int i = 0; i < 100; ++i) world.allocate(0, 4096, {});
    world.recorder.join(world.ledgers[0]);
    for (int i = 0; i < 100; ++i) world.free(0, 0);
  }
  for (const std::size_t stream : {std::size_t{1}, std::size_t{2}}) world.recorder.part(world.ledgers[stream]);
  const auto work = [&](int turns) {
    for (int turn = 0; turn < turns; ++turn) {
      for (const std::size_t stream : {std::size_t{1}, std::size_t{2}}) hold_and_free(world, stream, 40);
      world.allocate(0, 512, {});  // asleep: the recorder's own takes part
      world.free(0, 0);
    }
  };
  work(5);
  const std::uint64_t grants = world.recorder.grants();
  work(20);
  EXPECT_LE(world.recorder.grants(), grants + 40) << "but for the recorder's own, twice a turn";
  world.compare();
}

// They take turns up to the peak: each by itself needs what the one before it had.
TEST(StreamLedgers, StreamsThatShareNeedNoGrantForTheirTurns) {
  World world;
  give_room(world, 2, 20);
  const auto take_turns = [&](int turns) {
    for (int turn = 0; turn < turns; ++turn)
      for (const std::size_t stream : {std::size_t{0}, std::size_t{1}}) hold_and_free(world, stream, 20);
  };
  take_turns(2);
  const std::uint64_t before = world.recorder.grants();
  take_turns(10);
  EXPECT_GE(world.recorder.grants(), before + 20);
  for (const std::size_t stream : {std::size_t{0}, std::size_t{1}}) world.recorder.share(world.ledgers[stream]);
  take_turns(1);
  const std::uint64_t grants = world.recorder.grants();
  take_turns(10);
  EXPECT_EQ(world.recorder.grants(), grants);
  world.compare();
  for (const std::size_t stream : {std::size_t{0}, std::size_t{1}}) world.recorder.end_sharing(world.ledgers[stream]);
  take_turns(1);
  EXPECT_GT(world.recorder.grants(), grants + 2);
  world.compare();
}

// A few blocks a turn: the room goes from one to the other with each.
TEST(StreamLedgers, RoomThatGoesFromOneToAnotherIsScarce) {
  World world;
  give_room(world, 2, 3);
  const auto is_scarce = [&] { return world.ledgers[0].is_scarce() && world.ledgers[1].is_scarce(); };
  int turns = 0;
  for (; turns < 100 && !is_scarce(); ++turns)
    for (const std::size_t stream : {std::size_t{0}, std::size_t{1}}) hold_and_free(world, stream, 3);
  EXPECT_GT(turns, 5);
  EXPECT_LT(turns, 30);
  world.recorder.share(world.ledgers[0]);
  EXPECT_FALSE(world.ledgers[0].is_scarce());
  world.recorder.join(world.ledgers[1]);
  EXPECT_FALSE(world.ledgers[1].is_scarce());
  world.recorder.join(world.ledgers[0]);
  EXPECT_EQ(world.recorder.sharing(), 0U);
}

TEST(StreamLedgers, PeaksThatMoveAreNotScarce) {
  for (const bool lends : {false, true}) {
    World world;
    world.lends = lends;
    give_room(world, 2, 3);
    for (int i = 0; i < 200; ++i) world.allocate(static_cast<std::size_t>(i % 2), 512, {});
    EXPECT_FALSE(world.ledgers[0].is_scarce() || world.ledgers[1].is_scarce());
  }
}

// It asks a few times after each of the other's turns, and works for long then.
TEST(StreamLedgers, WhoIsInterruptedNowAndThenIsNotScarce) {
  World world;
  give_room(world, 2, 20);
  for (int times = 0; times < 50; ++times) {
    for (int steps = 0; steps < 100; ++steps) hold_and_free(world, 0, 20);
    hold_and_free(world, 1, 20);
  }
  EXPECT_FALSE(world.ledgers[0].is_scarce());
}

TEST(StreamLedgers, AGrantNowAndThenIsNotScarce) {
  World world;
  give_room(world, 2, 300);
  for (int turn = 0; turn < 100; ++turn)
    for (const std::size_t stream : {std::size_t{0}, std::size_t{1}}) hold_and_free(world, stream, 200);
  EXPECT_FALSE(world.ledgers[0].is_scarce() || world.ledgers[1].is_scarce());
}

// What is told with the heap's lock finds room whenever it asks for some.
TEST(StreamLedgers, WhatNoStreamCountsApartKeepsNoPart) {
  World world;
  give_room(world, 1, 100);
  world.allocate(1, 512, {});
  world.free(1, 0);
  hold_and_free(world, 0, 100);
  const std::uint64_t grants = world.recorder.grants();
  hold_and_free(world, 0, 100);
  EXPECT_EQ(world.recorder.grants(), grants);
  EXPECT_LT(grants, 110U) << "the first 100 blocks, the one of the other, and what halves the rest";
}

// Three streams, and room for two blocks.
TEST(StreamLedgers, WhatIsLeftOverIsForWhoAsks) {
  World world;
  give_room(world, World::kStreams, 5);
  for (std::size_t stream = 0; stream < World::kStreams; ++stream) world.allocate(stream, 512, {});
  world.free(0, 0);
  world.allocate(0, 512, {});
  world.recorder.reset_accumulated();
  const std::uint64_t grants = world.recorder.grants();
  world.allocate(1, 512, {});
  EXPECT_EQ(world.recorder.grants(), grants + 1);
  world.free(1, 0);
  hold_and_free(world, 1, 1);
  EXPECT_EQ(world.recorder.grants(), grants + 1) << "one block of room was left over, and there are two";
}

}  // namespace
}  // namespace cistern
