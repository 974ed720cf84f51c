// What each transition moves, and what the resets leave.

#include "stats/recorder.h"

#include "stats/fields.h"
#include "tests/byte_units.h"
#include "tests/moved_stat.h"
#include "tests/property.h"
#include "tests/stats/stat.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace cistern {
namespace {

[[maybe_unused]] const bool recorder_configured = configure_properties("RecorderProperty", 2000, 200);

TEST(Recorder, StartsAtZeroWithAnUnlimitedSplitSize) {
  const Recorder recorder;
  for (const auto& [key, value] : recorder.stats().flat()) EXPECT_EQ(value, key == "max_split_size" ? -1 : 0) << key;
}

TEST(Recorder, IncreaseRaisesThePeakAndDecreaseKeepsIt) {
  Recorder recorder;
  recorder.segment_allocated(PoolKind::small, 2 * kSignedMega, false);
  recorder.segment_allocated(PoolKind::small, 2 * kSignedMega, false);
  recorder.segment_freed(PoolKind::small, 2 * kSignedMega, false);
  recorder.segment_allocated(PoolKind::small, 2 * kSignedMega, false);

  EXPECT_EQ(recorder.stats().segment.small_pool, stat(2, 2, 3, 1));
  EXPECT_EQ(recorder.stats().reserved_bytes.all,
            stat(4 * kSignedMega, 4 * kSignedMega, 6 * kSignedMega, 2 * kSignedMega));
  EXPECT_EQ(recorder.stats().num_device_alloc, 3);
  EXPECT_EQ(recorder.stats().num_device_free, 1);
}

TEST(Recorder, PeakOfAllIsThePeakOfTheSumNotTheSumOfThePeaks) {
  Recorder recorder;
  recorder.segment_allocated(PoolKind::small, 2 * kSignedMega, false);
  recorder.segment_freed(PoolKind::small, 2 * kSignedMega, false);
  recorder.segment_allocated(PoolKind::large, 20 * kSignedMega, false);

  EXPECT_EQ(recorder.stats().reserved_bytes.small_pool.peak, 2 * kSignedMega);
  EXPECT_EQ(recorder.stats().reserved_bytes.large_pool.peak, 20 * kSignedMega);
  EXPECT_EQ(recorder.stats().reserved_bytes.all.peak, 20 * kSignedMega);
}

TEST(Recorder, FreeRequestedLeavesTheBlockActiveUntilItCompletes) {
  Recorder recorder;
  recorder.block_allocated(PoolKind::small, 1024, 1000, {}, false);
  recorder.free_requested(PoolKind::small, 1024, false);

  EXPECT_EQ(recorder.stats().allocation.all, stat(0, 1, 1, 1));
  EXPECT_EQ(recorder.stats().allocated_bytes.all, stat(0, 1024, 1024, 1024));
  EXPECT_EQ(recorder.stats().active.all, stat(1, 1, 1, 0));
  EXPECT_EQ(recorder.stats().active_bytes.all, stat(1024, 1024, 1024, 0));
  EXPECT_EQ(recorder.stats().requested_bytes.all, stat(1000, 1000, 1000, 0));

  recorder.free_completed(PoolKind::small, 1024, 1000, {});
  EXPECT_EQ(recorder.stats().active.all, stat(0, 1, 1, 1));
  EXPECT_EQ(recorder.stats().active_bytes.all, stat(0, 1024, 1024, 1024));
  EXPECT_EQ(recorder.stats().requested_bytes.all, stat(0, 1000, 1000, 1000));
  EXPECT_EQ(recorder.stats().allocation.all, stat(0, 1, 1, 1));
}

// Less is allocated than is active: each comes to its own peak.
TEST(Recorder, PeaksOfWhatIsActiveAreSeenWhereAllElseHasRoom) {
  Recorder recorder;
  recorder.block_allocated(PoolKind::small, 1024, 1024, {}, false);
  recorder.freed(PoolKind::small, 1024, 1024, {}, false);
  recorder.block_allocated(PoolKind::small, 1024, 1, {}, false);
  recorder.free_requested(PoolKind::small, 1024, false);
  recorder.reset_accumulated();
  recorder.block_allocated(PoolKind::small, 1024, 1, {}, false);
  recorder.freed(PoolKind::small, 1024, 1, {}, false);
  EXPECT_EQ(recorder.stats().allocation.all, stat(0, 1, 1, 1));
  EXPECT_EQ(recorder.stats().active.all, stat(1, 2, 1, 1));
  EXPECT_EQ(recorder.stats().active_bytes.small_pool, stat(1024, 2048, 1024, 1024));
}

TEST(Recorder, SplitsThatCameAndWentAloneAreCounted) {
  Recorder recorder;
  for (int i = 0; i < 2; ++i) {
    recorder.block_allocated(PoolKind::small, 512, 1, {i, 512 * i}, false);
    recorder.free_requested(PoolKind::small, 512, false);
  }
  recorder.reset_peaks();
  recorder.reset_accumulated();
  recorder.free_completed(PoolKind::small, 512, 1, {-1, -512});
  recorder.free_completed(PoolKind::small, 512, 1, {1, 512});
  recorder.reset_peaks();
  EXPECT_EQ(recorder.stats().inactive_split.all, stat(1, 1, 1, 1));
  EXPECT_EQ(recorder.stats().inactive_split_bytes.all, stat(512, 512, 512, 512));
}

// A block that waits for another stream takes room below the peaks, and gives it back.
TEST(Recorder, ABlockThatWaitsAgainAndAgainNeedsNoNewRoom) {
  Recorder recorder;
  const auto pair = [&] {
    recorder.block_allocated(PoolKind::small, 1024, 1000, {1, 512}, false);
    recorder.free_requested(PoolKind::small, 1024, false);
    recorder.free_completed(PoolKind::small, 1024, 1000, {-1, -512}, {}, recorder.grants());
  };
  for (int i = 0; i < 3; ++i) pair();
  const std::uint64_t grants = recorder.grants();
  for (int i = 0; i < 100; ++i) pair();
  EXPECT_EQ(recorder.grants(), grants);
  EXPECT_EQ(recorder.stats().allocation.all, stat(0, 1, 103, 103));
  EXPECT_EQ(recorder.stats().allocated_bytes.small_pool, stat(0, 1024, 103 * 1024, 103 * 1024));
  EXPECT_EQ(recorder.stats().active.all, stat(0, 1, 103, 103));
  EXPECT_EQ(recorder.stats().requested_bytes.all, stat(0, 1000, 103 * 1000, 103 * 1000));
  EXPECT_EQ(recorder.stats().inactive_split.all, stat(0, 1, 103, 103));
}

// What was granted since the free was requested knows that less is allocated.
TEST(Recorder, RoomIsGivenBackToTheGrantThatItCameFromAlone) {
  Recorder recorder;
  recorder.block_allocated(PoolKind::small, 1024, 1, {}, false);
  recorder.free_requested(PoolKind::small, 1024, false);
  const std::uint64_t grant = recorder.grants();
  recorder.block_allocated(PoolKind::small, 1024, 1, {}, false);
  ASSERT_NE(recorder.grants(), grant);
  recorder.free_completed(PoolKind::small, 1024, 1, {}, {}, grant);
  EXPECT_EQ(recorder.stats().allocation.all, stat(1, 1, 2, 1));
  // Twice as much as ever before is allocated, for a moment.
  recorder.block_allocated(PoolKind::small, 1024, 1, {}, false);
  recorder.freed(PoolKind::small, 1024, 1, {}, false);
  EXPECT_EQ(recorder.stats().allocation.all, stat(1, 2, 3, 2));
  EXPECT_EQ(recorder.stats().active.all, stat(1, 2, 3, 2));
}

TEST(Recorder, SplitChangesAreCountedNet) {
  Recorder recorder;
  recorder.block_allocated(PoolKind::small, 512, 1, {1, 1536}, false);
  // Merged with one free neighbour and still split: no change of the count, one of the bytes.
  recorder.free_completed(PoolKind::small, 512, 1, {0, 512});
  EXPECT_EQ(recorder.stats().inactive_split.all, stat(1, 1, 1, 0));
  EXPECT_EQ(recorder.stats().inactive_split_bytes.all, stat(2048, 2048, 2048, 0));

  recorder.block_allocated(PoolKind::small, 512, 1, {0, -512}, false);
  EXPECT_EQ(recorder.stats().inactive_split.all, stat(1, 1, 1, 0));
  EXPECT_EQ(recorder.stats().inactive_split_bytes.all, stat(1536, 2048, 2048, 512));
}

TEST(Recorder, OversizeBlocksEndAtTheFreeCallAndSegmentsAtTheirReturn) {
  Recorder recorder;
  recorder.segment_allocated(PoolKind::large, 64 * kSignedMega, true);
  recorder.block_allocated(PoolKind::large, 64 * kSignedMega, 64 * kSignedMega, {}, true);
  recorder.free_requested(PoolKind::large, 64 * kSignedMega, true);
  EXPECT_EQ(recorder.stats().oversize_allocations, stat(0, 1, 1, 1));
  EXPECT_EQ(recorder.stats().oversize_segments, stat(1, 1, 1, 0));

  recorder.free_completed(PoolKind::large, 64 * kSignedMega, 64 * kSignedMega, {});
  recorder.segment_freed(PoolKind::large, 64 * kSignedMega, true);
  EXPECT_EQ(recorder.stats().oversize_allocations, stat(0, 1, 1, 1));
  EXPECT_EQ(recorder.stats().oversize_segments, stat(0, 1, 1, 1));
}

// A recorder in which no figure is 0 and no peak is the current value.
Recorder busy_recorder() {
  Recorder recorder;
  recorder.set_max_split_size(200 * kSignedMega);
  for (const PoolKind pool : {PoolKind::small, PoolKind::large}) {
    for (int i = 0; i < 3; ++i) {
      recorder.segment_allocated(pool, 2 * kSignedMega, true);
      recorder.block_allocated(pool, 1024, 1000, {1, 2 * kSignedMega - 1024}, true);
    }
    recorder.free_requested(pool, 1024, true);
    recorder.free_completed(pool, 1024, 1000, {-1, 1024 - 2 * kSignedMega});
    recorder.segment_freed(pool, 2 * kSignedMega, true);
  }
  recorder.allocation_retried();
  recorder.out_of_memory();
  recorder.all_streams_synchronized();
  return recorder;
}

TEST(Recorder, ResetOfPeaksMakesThemCurrentAndTouchesNothingElse) {
  Recorder recorder = busy_recorder();
  const auto before = recorder.stats().flat();
  recorder.reset_peaks();

  for (const auto& [key, value] : recorder.stats().flat()) {
    const std::string name = key.substr(0, key.rfind('.'));
    const bool is_peak = key.ends_with(".peak");
    EXPECT_EQ(value, before.at(is_peak ? name + ".current" : key)) << key;
    if (is_peak) {
      EXPECT_GT(before.at(key), value) << key;
    }
  }
}

TEST(Recorder, AccumulatedResetKeepsCurrentPeakAndTheSetting) {
  Recorder recorder = busy_recorder();
  const auto before = recorder.stats().flat();
  recorder.reset_accumulated();

  for (const auto& [key, value] : recorder.stats().flat()) {
    const bool kept = key.ends_with(".current") || key.ends_with(".peak") || key == "max_split_size";
    EXPECT_EQ(value, kept ? before.at(key) : 0) << key;
    EXPECT_NE(before.at(key), 0) << key;
  }
}

TEST(Recorder, AfterAnAccumulatedResetDifferencesStayExact) {
  Recorder recorder;
  recorder.block_allocated(PoolKind::small, 1024, 1000, {}, false);
  recorder.reset_accumulated();
  recorder.free_requested(PoolKind::small, 1024, false);
  EXPECT_EQ(recorder.stats().allocated_bytes.all, stat(0, 1024, 0, 1024));
}

struct Books {
  Stat all, small, large;
  void add(PoolKind pool, std::int64_t change) {
    move(all, change);
    move(pool == PoolKind::small ? small : large, change);
  }
  [[nodiscard]] bool equal(const PoolStat& stat) const {
    return stat.all == all && stat.small_pool == small && stat.large_pool == large;
  }
};

RC_GTEST_PROP(RecorderProperty, AnyProgramKeepsAllEqualToTheSumOfThePools, ()) {
  struct Live {
    PoolKind pool;
    std::int64_t bytes, requested;
    bool pending;
  };
  Recorder recorder;
  std::vector<Live> live;
  Books allocated, active, requested;
  for (const int choice : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1 << 20))) {
    const auto pool = choice % 2 == 0 ? PoolKind::small : PoolKind::large;
    const std::int64_t bytes = 512 * (1 + choice % 4096);
    if (live.empty() || choice % 3 == 0) {
      live.push_back({pool, bytes, bytes - choice % 512, false});
      recorder.block_allocated(pool, bytes, live.back().requested, {}, false);
      allocated.add(pool, bytes), active.add(pool, bytes), requested.add(pool, live.back().requested);
    } else if (Live& block = live[static_cast<std::size_t>(choice) % live.size()]; !block.pending) {
      block.pending = true;
      recorder.free_requested(block.pool, block.bytes, false);
      allocated.add(block.pool, -block.bytes);
    } else {
      recorder.free_completed(block.pool, block.bytes, block.requested, {});
      active.add(block.pool, -block.bytes), requested.add(block.pool, -block.requested);
      block = live.back();
      live.pop_back();
    }
    if (choice % 64 == 1) {
      recorder.reset_peaks();
      for (Books* books : {&allocated, &active, &requested})
        for (Stat* each : {&books->all, &books->small, &books->large}) each->peak = each->current;
    }
    const MemoryStats& stats = recorder.stats();
    RC_ASSERT(allocated.equal(stats.allocated_bytes));
    RC_ASSERT(active.equal(stats.active_bytes));
    RC_ASSERT(requested.equal(stats.requested_bytes));
    for (const PoolStatField& field : kPoolStatFields) {
      const PoolStat& s = stats.*field.member;
      RC_ASSERT(s.all.current == s.small_pool.current + s.large_pool.current);
      RC_ASSERT(s.all.allocated == s.small_pool.allocated + s.large_pool.allocated);
      RC_ASSERT(s.all.freed == s.small_pool.freed + s.large_pool.freed);
      RC_ASSERT(s.all.peak <= s.small_pool.peak + s.large_pool.peak);
    }
  }
}

}  // namespace
}  // namespace cistern
