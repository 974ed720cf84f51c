#include "allocator/sorted_chunks.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "allocator/runs_by_size.h"

namespace cistern {
namespace {

struct Value {
  std::uint64_t key;
  std::uint32_t number;
  friend bool operator==(const Value&, const Value&) = default;
};
struct ItsKey {
  std::uint64_t operator()(const Value& value) const { return value.key; }
};
using Chunks = SortedChunks<Value, ItsKey>;
constexpr std::size_t kChunk = Chunks::kChunk;

void expect_all(const Chunks& chunks, const std::map<std::uint64_t, std::uint32_t>& expected) {
  chunks.audit();
  ASSERT_EQ(chunks.size(), expected.size());
  auto value = expected.begin();
  for (auto at = chunks.begin(); at != chunks.end(); at = chunks.next(at), ++value)
    ASSERT_EQ(chunks[at], (Value{value->first, value->second}));
  ASSERT_EQ(value, expected.end());
}

TEST(SortedChunksTest, NothingIsFoundWhereNothingIs) {
  Chunks chunks;
  EXPECT_EQ(chunks.begin(), chunks.end());
  EXPECT_EQ(chunks.lower_bound(0), chunks.end());
  EXPECT_FALSE(chunks.contains(0));
  chunks.insert({7, 1});
  chunks.erase(chunks.lower_bound(7));
  EXPECT_EQ(chunks.begin(), chunks.end());
  chunks.audit();
}

TEST(SortedChunksTest, ProgramsAgreeWithAMapWhicheverWayTheyGrow) {
  for (const int kind : {0, 1, 2}) {
    std::mt19937_64 random(20261126 + static_cast<unsigned>(kind));
    Chunks chunks;
    std::map<std::uint64_t, std::uint32_t> expected;
    for (std::uint32_t round = 0; round < 20'000; ++round) {
      // It grows at its end, at its beginning, or anywhere, and shrinks at times.
      const std::uint64_t key = kind == 0 ? round : kind == 1 ? 100'000 - round : random() % 3000;
      const auto found = chunks.lower_bound(key);
      const auto bound = expected.lower_bound(key);
      ASSERT_EQ(found == chunks.end(), bound == expected.end());
      if (found != chunks.end()) {
        ASSERT_EQ(chunks[found].key, bound->first);
      }
      ASSERT_EQ(chunks.contains(key), expected.contains(key));
      if (found != chunks.begin()) {
        ASSERT_EQ(chunks[chunks.previous(found)].key, std::prev(bound)->first);
      }
      if (round / 2000 % 3 == 2 && !expected.empty()) {
        const auto gone = bound == expected.end() ? std::prev(bound) : bound;
        chunks.erase(chunks.lower_bound(gone->first));
        expected.erase(gone);
      } else if (!expected.contains(key)) {
        chunks.insert({key, round});
        expected[key] = round;
      } else {
        const std::uint64_t other = random() % 3000;
        if (other == key || expected.contains(other)) continue;
        chunks.change(found, {other, round});
        expected.erase(key);
        expected[other] = round;
      }
      if (round % 16 == 0) expect_all(chunks, expected);
    }
    expect_all(chunks, expected);
  }
}

TEST(SortedChunksTest, AValueIsReplacedWhereItIs) {
  Chunks chunks;
  for (std::uint32_t i = 0; i < 3 * kChunk; ++i) chunks.insert({10 * std::uint64_t{i} + 10, i});
  std::map<std::uint64_t, std::uint32_t> expected;
  for (std::uint32_t i = 0; i < 3 * kChunk; ++i) {
    const std::uint64_t key = 10 * std::uint64_t{i} + 10 - i % 7;
    chunks.replace(chunks.lower_bound(key), {key, i + 1});
    expected[key] = i + 1;
  }
  expect_all(chunks, expected);
}

// A full one is parted beside one that has few.
TEST(SortedChunksTest, AHalfJoinsANeighbourThatHasFew) {
  for (const bool few_come_first : {false, true}) {
    Chunks chunks;
    // Two chunks: of half of what one holds, and of the rest.
    for (std::uint32_t i = 0; i <= kChunk; ++i) chunks.insert({1000 * std::uint64_t{i}, i});
    const std::uint64_t middle = 1000 * (kChunk / 2);
    // The second is filled at its far end, and the first left with as few as may be; or the other way round.
    for (std::uint32_t i = 0; i < kChunk; ++i) {
      const std::uint64_t key = few_come_first ? 1'000'000 + std::uint64_t{i} : i + 1;
      const std::uint64_t gone = few_come_first ? 1000 * std::uint64_t{i} : middle + 1000 * std::uint64_t{i};
      chunks.insert({key, i});
      if (i < 20) chunks.erase(chunks.lower_bound(gone));
      chunks.audit();
    }
  }
}

// However few each chunk is left with: `provide` brought them all, or the next chunk would be missing.
TEST(SortedChunksTest, WhatWasProvidedIsEnoughInWhateverOrderValuesComeAndGo) {
  constexpr std::size_t kValues = 40 * kChunk;
  for (const std::size_t left : {1U, 7U, 23U, 24U, 25U, 33U, 47U}) {
    Chunks chunks;
    chunks.provide(kValues);
    EXPECT_TRUE(chunks.has_room_for(kValues));
    EXPECT_FALSE(chunks.has_room_for(kValues + 1));
    std::uint64_t next = 0;
    for (int round = 0; round < 12; ++round) {
      while (chunks.size() < kValues) chunks.insert({(next++ * 0x9E3779B97F4A7C15ULL) >> 20, 0});
      chunks.audit();
      // Of each 64 side by side some stay.
      std::vector<std::uint64_t> gone;
      std::size_t number = 0;
      for (auto at = chunks.begin(); at != chunks.end(); at = chunks.next(at))
        if (number++ % kChunk >= left) gone.push_back(chunks[at].key);
      for (const std::uint64_t key : gone) chunks.erase(chunks.lower_bound(key));
      chunks.audit();
    }
    EXPECT_FALSE(chunks.has_room_for(kValues + 1)) << "nothing was brought since";
  }
}

TEST(RunsBySizeTest, RunsOfAStreamBySizeAndThenAddress) {
  RunsBySize runs;
  constexpr Sectors kFar = (Sectors{1} << kAddressBits) - 1;
  constexpr Sectors kLong = (Sectors{1} << kArenaBits) - 1;
  const std::vector<FreeRun> all{{5, 1, 2}, {kFar, 1, 2}, {0, 2, 2}, {3, kLong, 2}};
  for (const FreeRun& run : all)
    for (const StreamNumber stream : {1, 2, 3, 1 << 30}) runs.add({run.address, run.sectors, stream});
  const auto from = [&](StreamNumber stream, Sectors sectors) {
    std::vector<FreeRun> found;
    runs.for_each_from(stream, sectors, [&](const FreeRun& run) {
      found.push_back(run);
      return true;
    });
    return found;
  };
  EXPECT_EQ(from(2, 0), all);
  EXPECT_EQ(from(2, 2), std::vector<FreeRun>(all.begin() + 2, all.end()));
  EXPECT_EQ(from(4, 0), std::vector<FreeRun>());
  EXPECT_EQ(from(1 << 30, kLong), (std::vector<FreeRun>{{3, kLong, 1 << 30}}));
  for (const StreamNumber stream : {1, 2, 3}) EXPECT_EQ(from(stream, kLong + 1), std::vector<FreeRun>());
  runs.change({0, 2, 2}, {1, 1, 2});
  runs.remove({5, 1, 2});
  EXPECT_EQ(from(2, 0), (std::vector<FreeRun>{{1, 1, 2}, {kFar, 1, 2}, {3, kLong, 2}}));
  EXPECT_TRUE(runs.contains({5, 1, 1}));
  EXPECT_FALSE(runs.contains({5, 1, 2}));
  std::size_t count = 0;
  runs.audit([&](const FreeRun&) { ++count; });
  EXPECT_EQ(count, runs.size());
}

}  // namespace
}  // namespace cistern
