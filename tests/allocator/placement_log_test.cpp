#include "allocator/placement_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

namespace cistern {
namespace {

using Places = std::vector<LoggedPlace>;

void arrive(PlacementLog& log, const LoggedPlace& place) {
  log.arrived(PlacementLog::mark_of(place), PlacementLog::mark_of(place));
}
void leave(PlacementLog& log, const LoggedPlace& place) {
  log.left(PlacementLog::mark_of(place));
  log.came_free(PlacementLog::mark_of(place));
}

Places candidates(const PlacementLog& log, StreamNumber stream, Sectors sectors) {
  std::vector<PlacementLog::Number> entries;
  log.candidates(log.key_of(stream), sectors, entries);
  Places places;
  for (const PlacementLog::Number number : entries) places.push_back(log.entry(number).place);
  return places;
}

TEST(PlacementLogTest, TheStateIsWhatLivesNotHowItCameAbout) {
  PlacementLog log(100);
  const LoggedPlace first{1000, 8};
  const LoggedPlace second{2000, 16};
  const auto empty = log.key_of(0);
  arrive(log, first);
  arrive(log, second);
  const auto both = log.key_of(0);
  leave(log, first);
  EXPECT_NE(log.key_of(0), both);
  arrive(log, first);
  EXPECT_EQ(log.key_of(0), both);
  EXPECT_NE(log.key_of(1), both);
  leave(log, second);
  leave(log, first);
  EXPECT_EQ(log.key_of(0), empty);
  arrive(log, {1000, 9});
  const auto larger = log.key_of(0);
  leave(log, {1000, 9});
  arrive(log, first);
  EXPECT_NE(log.key_of(0), larger);
}

TEST(PlacementLogTest, RequestsUpToAnEighthSmallerTheSmallestPlaceFirstThenTheOldest) {
  PlacementLog log(100);
  const auto key = log.key_of(0);
  log.append(key, log.taken(), {1, 90});
  log.append(key, log.taken(), {2, 80});
  log.append(key, log.taken(), {3, 90});
  log.append(key, log.taken(), {4, 80});
  EXPECT_EQ(candidates(log, 0, 79), (Places{{2, 80}, {4, 80}, {1, 90}, {3, 90}}));
  EXPECT_EQ(candidates(log, 0, 78), (Places{{2, 80}, {4, 80}, {1, 90}, {3, 90}}));  // 90 - 11 - 1
  EXPECT_EQ(candidates(log, 0, 77), (Places{{2, 80}, {4, 80}}));
  EXPECT_EQ(candidates(log, 0, 69), (Places{{2, 80}, {4, 80}}));  // 80 - 10 - 1
  EXPECT_EQ(candidates(log, 0, 68), Places());
  EXPECT_EQ(candidates(log, 0, 81), (Places{{1, 90}, {3, 90}}));
  EXPECT_EQ(candidates(log, 0, 91), Places());
  EXPECT_EQ(candidates(log, 1, 80), Places());
}

TEST(PlacementLogTest, WhatIsPassedOverIsFoundNoMoreUnlessItIsNotedAgain) {
  PlacementLog log(100);
  const auto key = log.key_of(0);
  log.append(key, log.taken(), {1, 80});
  log.append(key, log.taken(), {2, 80});
  const PlacementLog::Number first = log.exact(key, 80);
  ASSERT_EQ(log.entry(first).place.address, 1);
  log.pass_over(first);
  const PlacementLog::Number second = log.exact(key, 80);
  ASSERT_NE(second, PlacementLog::kNone);
  EXPECT_EQ(log.entry(second).place.address, 2);
  log.audit();
  log.pass_over(second);
  EXPECT_EQ(log.exact(key, 80), PlacementLog::kNone);
  EXPECT_EQ(candidates(log, 0, 80), (Places{{1, 80}, {2, 80}}));
  log.audit();
  log.note_free(first, key, log.taken(), {1, 80}, 5);
  EXPECT_EQ(log.exact(key, 80), first);
  log.audit();
}

// A state may be passed twice with much the same request.
TEST(PlacementLogTest, ASmallerRequestPrefersWhatCameNextAndGetsTheSameAgain) {
  PlacementLog log(100);
  const auto key = log.key_of(0);
  log.append(key, log.taken(), {1, 80});
  log.append(key, log.taken(), {2, 84});
  EXPECT_EQ(candidates(log, 0, 78), (Places{{1, 80}, {2, 84}}));
  log.follow(0);
  EXPECT_EQ(candidates(log, 0, 78), (Places{{2, 84}, {1, 80}}));
  EXPECT_EQ(candidates(log, 0, 80), (Places{{1, 80}, {2, 84}})) << "the same request needs no guess";
  log.append(key, log.taken(), {2, 84}, PlacementLog::kNone, {6, 1});
  log.follow(1);
  EXPECT_EQ(log.exact(key, 78), 2U);
  EXPECT_EQ(candidates(log, 0, 78).front(), (LoggedPlace{2, 84})) << "whatever came before it";
  log.audit();
}

// Of one state and size, by what is taken of the places: each is found, and what it is known as changes with it.
TEST(PlacementLogTest, EachWayToTakeThePlacesIsFoundHoweverManyThereAre) {
  constexpr int kWays = 200;
  PlacementLog log(1000);
  const auto key = log.key_of(0);
  const auto taken_in = [](int way) { return PlacementLog::mark_of({way, 1}); };
  const auto found_in = [&](int way) {
    log.arrived({}, taken_in(way));
    const PlacementLog::Number found = log.exact(key, 8);
    log.came_free(taken_in(way));
    return found;
  };
  for (int way = 0; way < kWays; ++way) log.append(key, taken_in(way), {way, 8});
  for (int way = 0; way < kWays; ++way) EXPECT_EQ(found_in(way), static_cast<PlacementLog::Number>(way));
  log.note_free(7, key, taken_in(kWays), {7, 8}, 1);
  EXPECT_EQ(found_in(7), PlacementLog::kNone);
  EXPECT_EQ(found_in(kWays), 7U);
  log.append(key, taken_in(7), {300, 8});
  EXPECT_EQ(found_in(7), static_cast<PlacementLog::Number>(kWays));
  log.note_free(7, key, taken_in(8), {7, 8}, 1);
  EXPECT_EQ(found_in(8), 8U) << "it was there first";
  log.audit();
}

TEST(PlacementLogTest, AFullRingDropsTheOldestAndGrowsWhenToldSo) {
  PlacementLog log(2);
  const auto key = log.key_of(0);
  for (Sectors address = 1; address <= 3; ++address) log.append(key, log.taken(), {address, 8});
  EXPECT_EQ(candidates(log, 0, 8), (Places{{2, 8}, {3, 8}}));
  log.grow(3);
  log.grow(1);
  EXPECT_EQ(log.capacity(), 3U);
  log.append(key, log.taken(), {4, 8});
  EXPECT_EQ(candidates(log, 0, 8), (Places{{2, 8}, {3, 8}, {4, 8}}));
  log.append(key, log.taken(), {5, 8});
  EXPECT_EQ(candidates(log, 0, 8), (Places{{3, 8}, {4, 8}, {5, 8}}));
  log.audit();
  PlacementLog none(0);
  none.append(key, none.taken(), {1, 8});
  EXPECT_EQ(none.size(), 0U);
}

TEST(PlacementLogTest, RandomProgramsAgreeWithAListOfEntries) {
  std::mt19937_64 random(20261121);
  struct Known {
    PlacementLog::Key key;
    LoggedPlace place;
  };
  std::size_t capacity = 400;
  PlacementLog log(capacity);
  std::deque<Known> known;
  Places live;
  for (int round = 0; round < 6000; ++round) {
    if (round == 3500) log.grow(capacity = 700);
    const auto stream = static_cast<StreamNumber>(random() % 2);
    const auto sectors = static_cast<Sectors>(1 + random() % 30);
    const auto key = log.key_of(stream);
    Places expected;
    for (const Known& entry : known)
      if (entry.key == key && entry.place.sectors >= sectors &&
          sectors >= entry.place.sectors - entry.place.sectors / 8 - 1)
        expected.push_back(entry.place);
    std::stable_sort(expected.begin(), expected.end(),
                     [](const auto& a, const auto& b) { return a.sectors < b.sectors; });
    const bool is_short =
        std::count_if(known.begin(), known.end(), [&](const Known& entry) { return entry.key == key; }) <= 64;
    if (is_short) {
      ASSERT_EQ(candidates(log, stream, sectors), expected) << "round " << round;
    }
    const PlacementLog::Number exact = log.exact(key, sectors);
    const auto first = std::find_if(known.begin(), known.end(), [&](const Known& entry) {
      return entry.key == key && entry.place.sectors == sectors;
    });
    if (exact != PlacementLog::kNone) {
      ASSERT_NE(first, known.end()) << "round " << round;
      ASSERT_TRUE(log.entry(exact).place == first->place || !is_short) << "round " << round;
    } else {
      ASSERT_TRUE(first == known.end() || !is_short) << "round " << round;
    }
    if (random() % 500 == 0) log.audit();
    if (random() % 2 == 0) {
      const LoggedPlace place{static_cast<Sectors>(random() % 50), sectors};
      log.append(key, log.taken(), place);
      known.push_back({key, place});
      if (known.size() > capacity) known.pop_front();
    }
    // Few blocks, so that states come again.
    if (live.size() < 3 && random() % 2 == 0) {
      live.push_back({static_cast<Sectors>(random() % 3), 8});
      arrive(log, live.back());
    } else if (!live.empty()) {
      leave(log, live.back());
      live.pop_back();
    }
  }
  EXPECT_EQ(log.size(), capacity);
  log.audit();
}

}  // namespace
}  // namespace cistern
