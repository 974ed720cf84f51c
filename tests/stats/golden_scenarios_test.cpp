// Two runs whose figures are known: the transitions of each step, and every figure after it.
// A cell is current/peak/allocated/freed, as in the table that the figures come from.

#include "stats/recorder.h"

#include "stats/fields.h"
#include "tests/byte_units.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cistern {
namespace {

constexpr PoolKind kSmall = PoolKind::small;
constexpr PoolKind kLarge = PoolKind::large;

std::string cell(const Stat& stat) {
  return fmt::format("{}/{}/{}/{}", stat.current, stat.peak, stat.allocated, stat.freed);
}

// The `all` cells in the order of the table's columns.
std::vector<std::string> cells(const MemoryStats& stats) {
  std::vector<std::string> row;
  for (const PoolStat& stat :
       {stats.allocation, stats.active, stats.segment, stats.inactive_split, stats.allocated_bytes, stats.active_bytes,
        stats.requested_bytes, stats.reserved_bytes, stats.inactive_split_bytes})
    row.push_back(cell(stat.all));
  return row;
}

void free_block(Recorder& recorder, PoolKind pool, std::int64_t bytes, std::int64_t requested,
                InactiveSplitChange split) {
  recorder.free_requested(pool, bytes, false);
  recorder.free_completed(pool, bytes, requested, split);
}

using Row = std::vector<std::string>;

TEST(GoldenScenario, EveryStepOfTheFirstRunHasTheKnownFigures) {
  Recorder recorder;

  // 1: x, 1000 bytes: a new segment, split.
  recorder.segment_allocated(kSmall, 2 * kSignedMega, false);
  recorder.block_allocated(kSmall, 1024, 1000, {1, 2096128}, false);
  EXPECT_EQ(cells(recorder.stats()),
            (Row{"1/1/1/0", "1/1/1/0", "1/1/1/0", "1/1/1/0", "1024/1024/1024/0", "1024/1024/1024/0", "1000/1000/1000/0",
                 "2097152/2097152/2097152/0", "2096128/2096128/2096128/0"}));

  // 2: y, 3145729 bytes: a new segment, split.
  recorder.segment_allocated(kLarge, 20 * kSignedMega, false);
  recorder.block_allocated(kLarge, 3146240, 3145729, {1, 17825280}, false);
  EXPECT_EQ(cells(recorder.stats()),
            (Row{"2/2/2/0", "2/2/2/0", "2/2/2/0", "2/2/2/0", "3147264/3147264/3147264/0", "3147264/3147264/3147264/0",
                 "3146729/3146729/3146729/0", "23068672/23068672/23068672/0", "19921408/19921408/19921408/0"}));

  // 3: x is freed and merges with the rest of its segment.
  free_block(recorder, kSmall, 1024, 1000, {-1, -2096128});
  const Row after_x{"1/2/2/1",
                    "1/2/2/1",
                    "2/2/2/0",
                    "1/2/2/1",
                    "3146240/3147264/3147264/1024",
                    "3146240/3147264/3147264/1024",
                    "3145729/3146729/3146729/1000",
                    "23068672/23068672/23068672/0",
                    "17825280/19921408/19921408/2096128"};
  EXPECT_EQ(cells(recorder.stats()), after_x);

  // 4: y is freed, but another stream has not passed yet.
  recorder.free_requested(kLarge, 3146240, false);
  Row pending = after_x;
  pending[0] = "0/2/2/2";
  pending[4] = "0/3147264/3147264/3147264";
  EXPECT_EQ(cells(recorder.stats()), pending);

  // 5: it has.
  recorder.free_completed(kLarge, 3146240, 3145729, {-1, -17825280});
  EXPECT_EQ(cells(recorder.stats()),
            (Row{"0/2/2/2", "0/2/2/2", "2/2/2/0", "0/2/2/2", "0/3147264/3147264/3147264", "0/3147264/3147264/3147264",
                 "0/3146729/3146729/3146729", "23068672/23068672/23068672/0", "0/19921408/19921408/19921408"}));

  // 6: z, 12 MiB, takes a part of the free 20 MiB segment.
  recorder.block_allocated(kLarge, 12582912, 12582912, {1, 8388608}, false);
  EXPECT_EQ(cells(recorder.stats()),
            (Row{"1/2/3/2", "1/2/3/2", "2/2/2/0", "1/2/3/2", "12582912/12582912/15730176/3147264",
                 "12582912/12582912/15730176/3147264", "12582912/12582912/15729641/3146729",
                 "23068672/23068672/23068672/0", "8388608/19921408/28310016/19921408"}));

  // 7: w, 15728641 bytes: a new segment of 16 MiB, taken whole.
  recorder.segment_allocated(kLarge, 16 * kSignedMega, false);
  recorder.block_allocated(kLarge, 16 * kSignedMega, 15728641, {}, false);
  Row whole{"2/2/4/2",
            "2/2/4/2",
            "3/3/3/0",
            "1/2/3/2",
            "29360128/29360128/32507392/3147264",
            "29360128/29360128/32507392/3147264",
            "28311553/28311553/31458282/3146729",
            "39845888/39845888/39845888/0",
            "8388608/19921408/28310016/19921408"};
  EXPECT_EQ(cells(recorder.stats()), whole);

  // 8: the peaks are reset.
  recorder.reset_peaks();
  whole[3] = "1/1/3/2";
  whole[8] = "8388608/8388608/28310016/19921408";
  EXPECT_EQ(cells(recorder.stats()), whole);

  // 9: z and w are freed.
  free_block(recorder, kLarge, 12582912, 12582912, {-1, -8388608});
  free_block(recorder, kLarge, 16 * kSignedMega, 15728641, {});
  Row idle{"0/2/4/4",
           "0/2/4/4",
           "3/3/3/0",
           "0/1/3/3",
           "0/29360128/32507392/32507392",
           "0/29360128/32507392/32507392",
           "0/28311553/31458282/31458282",
           "39845888/39845888/39845888/0",
           "0/8388608/28310016/28310016"};
  EXPECT_EQ(cells(recorder.stats()), idle);

  // 10: empty_cache.
  recorder.all_streams_synchronized();
  recorder.segment_freed(kLarge, 16 * kSignedMega, false);
  recorder.segment_freed(kLarge, 20 * kSignedMega, false);
  recorder.segment_freed(kSmall, 2 * kSignedMega, false);
  idle[2] = "0/3/3/3";
  idle[7] = "0/39845888/39845888/39845888";
  EXPECT_EQ(cells(recorder.stats()), idle);

  EXPECT_EQ(recorder.stats().num_device_alloc, 3);
  EXPECT_EQ(recorder.stats().num_device_free, 3);
  EXPECT_EQ(recorder.stats().num_sync_all_streams, 1);
  EXPECT_EQ(recorder.stats().num_alloc_retries, 0);
  EXPECT_EQ(recorder.stats().num_ooms, 0);
}

// A device with 96 MiB: what is freed is pending or cached until a flush, and then it is
// still not enough.
Recorder run_with_retries() {
  Recorder recorder;
  // On one stream 1000, 3145729 and 5000 bytes, on another 700000.
  recorder.segment_allocated(kSmall, 2 * kSignedMega, false);
  recorder.block_allocated(kSmall, 1024, 1000, {1, 2096128}, false);
  recorder.segment_allocated(kLarge, 20 * kSignedMega, false);
  recorder.block_allocated(kLarge, 3146240, 3145729, {1, 17825280}, false);
  recorder.block_allocated(kSmall, 5120, 5000, {0, -5120}, false);
  recorder.segment_allocated(kSmall, 2 * kSignedMega, false);
  recorder.block_allocated(kSmall, 700416, 700000, {1, 1396736}, false);
  recorder.free_requested(kLarge, 3146240, false);
  // 50 MiB, freed and cached.
  recorder.segment_allocated(kLarge, 50 * kSignedMega, false);
  recorder.block_allocated(kLarge, 50 * kSignedMega, 50 * kSignedMega, {}, false);
  free_block(recorder, kLarge, 50 * kSignedMega, 50 * kSignedMega, {});
  // 66 MiB: refused, flushed, served.
  recorder.all_streams_synchronized();
  recorder.free_completed(kLarge, 3146240, 3145729, {-1, -17825280});
  recorder.segment_freed(kLarge, 20 * kSignedMega, false);
  recorder.segment_freed(kLarge, 50 * kSignedMega, false);
  recorder.allocation_retried();
  recorder.segment_allocated(kLarge, 66 * kSignedMega, false);
  recorder.block_allocated(kLarge, 66 * kSignedMega, 66 * kSignedMega, {}, false);
  // 90 MiB: refused, flushed, refused.
  recorder.all_streams_synchronized();
  recorder.allocation_retried();
  recorder.out_of_memory();
  // 4096 bytes, pending at the end.
  recorder.block_allocated(kSmall, 4096, 4096, {0, -4096}, false);
  recorder.free_requested(kSmall, 4096, false);
  return recorder;
}

TEST(GoldenScenario, TheRunWithRetriesEndsWithTheKnownFigures) {
  const Recorder recorder = run_with_retries();
  const MemoryStats& stats = recorder.stats();
  EXPECT_EQ(stats.num_device_alloc, 5);
  EXPECT_EQ(stats.num_device_free, 2);
  EXPECT_EQ(stats.num_sync_all_streams, 2);
  EXPECT_EQ(stats.num_alloc_retries, 2);
  EXPECT_EQ(stats.num_ooms, 1);
  EXPECT_EQ(stats.max_split_size, -1);

  const auto row = [](const PoolStat& stat) {
    return Row{cell(stat.all), cell(stat.large_pool), cell(stat.small_pool)};
  };
  EXPECT_EQ(row(stats.allocation), (Row{"4/5/7/3", "1/1/3/2", "3/4/4/1"}));
  EXPECT_EQ(row(stats.active), (Row{"5/5/7/2", "1/2/3/2", "4/4/4/0"}));
  EXPECT_EQ(row(stats.segment), (Row{"3/4/5/2", "1/2/3/2", "2/2/2/0"}));
  EXPECT_EQ(row(stats.inactive_split), (Row{"2/3/3/1", "0/1/1/1", "2/2/2/0"}));
  EXPECT_EQ(row(stats.allocated_bytes), (Row{"69912576/69916672/125491712/55579136",
                                             "69206016/69206016/124781056/55575040", "706560/710656/710656/4096"}));
  EXPECT_EQ(row(stats.active_bytes), (Row{"69916672/69916672/125491712/55575040",
                                          "69206016/69206016/124781056/55575040", "710656/710656/710656/0"}));
  EXPECT_EQ(row(stats.requested_bytes), (Row{"69916112/69916112/125490641/55574529",
                                             "69206016/69206016/124780545/55574529", "710096/710096/710096/0"}));
  EXPECT_EQ(row(stats.reserved_bytes), (Row{"73400320/77594624/146800640/73400320",
                                            "69206016/73400320/142606336/73400320", "4194304/4194304/4194304/0"}));
  EXPECT_EQ(row(stats.inactive_split_bytes), (Row{"3483648/21313024/21318144/17834496", "0/17825280/17825280/17825280",
                                                  "3483648/3487744/3492864/9216"}));
}

}  // namespace
}  // namespace cistern
