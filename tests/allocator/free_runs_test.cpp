#include "allocator/free_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace cistern {
namespace {

std::vector<FreeRun> all(const FreeRuns& runs) {
  std::vector<FreeRun> found;
  runs.for_each([&](const FreeRun& run) { found.push_back(run); });
  return found;
}

TEST(FreeRunsTest, NeighboursOfOneStreamAreOneRun) {
  FreeRuns runs;
  runs.give(100, 10, 0);
  runs.give(120, 10, 0);
  runs.give(130, 5, 1);
  runs.give(110, 10, 0);
  EXPECT_EQ(all(runs), (std::vector<FreeRun>{{100, 30, 0}, {130, 5, 1}}));
  EXPECT_EQ(runs.sectors(), 35);
  EXPECT_TRUE(runs.is_free(100, 35));
  EXPECT_FALSE(runs.is_free(99, 2));
  EXPECT_FALSE(runs.is_free(130, 6));
  runs.audit();
}

TEST(FreeRunsTest, TakingTellsWhoseItWas) {
  FreeRuns runs;
  runs.give(0, 10, 0);
  runs.give(10, 10, 2);
  std::vector<FreeRun> taken;
  runs.take(5, 10, taken);
  EXPECT_EQ(taken, (std::vector<FreeRun>{{5, 5, 0}, {10, 5, 2}}));
  EXPECT_EQ(all(runs), (std::vector<FreeRun>{{0, 5, 0}, {15, 5, 2}}));
  runs.take(0, 2, taken);
  EXPECT_EQ(taken.back(), (FreeRun{0, 2, 0}));
}

// A run of many pages, of which what is left begins in one where none began.
TEST(FreeRunsTest, WhatIsLeftBeginsFarBehind) {
  FreeRuns runs;
  runs.give(0, 100'000, 0);
  runs.take(0, 99'999);
  EXPECT_EQ(all(runs), (std::vector<FreeRun>{{99'999, 1, 0}}));
  runs.audit();
}

TEST(FreeRunsTest, TheRunThatEndsThere) {
  FreeRuns runs;
  EXPECT_EQ(runs.ending_at(10, 0), std::nullopt);
  runs.give(4, 6, 1);
  EXPECT_EQ(runs.ending_at(10, 1), (FreeRun{4, 6, 1}));
  EXPECT_EQ(runs.ending_at(10, 0), std::nullopt);
  EXPECT_EQ(runs.ending_at(9, 1), std::nullopt);
  EXPECT_EQ(runs.ending_at(11, 1), std::nullopt);
}

TEST(FreeRunsTest, RandomProgramsAgreeWithATableOfSectors) {
  constexpr Sectors kSize = 200;
  std::mt19937_64 random(20261121);
  FreeRuns runs;
  std::vector<int> owner(kSize, -1);  // -1: not free
  for (int round = 0; round < 4000; ++round) {
    const Sectors begin = static_cast<Sectors>(random() % kSize);
    const Sectors count =
        1 + static_cast<Sectors>(random() % static_cast<std::size_t>(std::min<Sectors>(kSize - begin, 30)));
    const auto first = owner.begin() + begin;
    const bool free = std::none_of(first, first + count, [](int stream) { return stream < 0; });
    ASSERT_EQ(runs.is_free(begin, count), free);
    if (free) {
      std::vector<FreeRun> taken;
      runs.take(begin, count, taken);
      std::vector<int> streams;
      for (const FreeRun& piece : taken)
        streams.insert(streams.end(), static_cast<std::size_t>(piece.sectors), piece.stream);
      ASSERT_EQ(streams, std::vector<int>(first, first + count));
      std::fill(first, first + count, -1);
    } else if (std::all_of(first, first + count, [](int stream) { return stream < 0; })) {
      const int stream = static_cast<int>(random() % 3);
      runs.give(begin, count, stream);
      std::fill(first, first + count, stream);
    }
    std::vector<FreeRun> expected;
    for (Sectors i = 0; i < kSize; ++i) {
      const int stream = owner[static_cast<std::size_t>(i)];
      if (stream < 0) continue;
      if (!expected.empty() && expected.back().end() == i && expected.back().stream == stream)
        ++expected.back().sectors;
      else
        expected.push_back({i, 1, stream});
    }
    ASSERT_EQ(all(runs), expected) << "round " << round;
    runs.audit();
  }
}

}  // namespace
}  // namespace cistern
