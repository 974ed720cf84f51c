#include "allocator/placement_log.h"

#include "tests/allocator/mapped_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

namespace cistern {
namespace {

using Places = std::vector<LoggedPlace>;

// Of two streams.
struct TestedLog : PlacementLog {
  explicit TestedLog(std::size_t capacity) : PlacementLog(capacity) { add_stream(1); }
  void note(const LoggedPlace& place) { append(own_position(0), place); }
};

void arrive(PlacementLog& log, const LoggedPlace& place, StreamNumber stream = 0) {
  log.arrived(stream, PlacementLog::mark_of(place), PlacementLog::mark_of(place));
}
void leave(PlacementLog& log, const LoggedPlace& place, StreamNumber stream = 0) {
  log.left(stream, PlacementLog::mark_of(place));
  log.came_free(stream, PlacementLog::mark_of(place));
}

Places candidates(const PlacementLog& log, StreamNumber stream, Sectors sectors) {
  std::vector<PlacementLog::Number> entries;
  log.candidates(log.own_position(stream), sectors, entries);
  Places places;
  for (const PlacementLog::Number number : entries) places.push_back(log.entry(number).place);
  return places;
}

TEST(PlacementLogTest, TheStateIsWhatLivesNotHowItCameAbout) {
  TestedLog log(100);
  const LoggedPlace first{1000, 8};
  const LoggedPlace second{2000, 16};
  const auto empty = log.own_position(0);
  arrive(log, first);
  arrive(log, second);
  const auto both = log.own_position(0);
  leave(log, first);
  EXPECT_NE(log.own_position(0), both);
  arrive(log, first);
  EXPECT_EQ(log.own_position(0), both);
  EXPECT_NE(log.own_position(1), both);
  leave(log, second);
  leave(log, first);
  EXPECT_EQ(log.own_position(0), empty);
  arrive(log, {1000, 9});
  const auto larger = log.own_position(0);
  leave(log, {1000, 9});
  arrive(log, first);
  EXPECT_NE(log.own_position(0), larger);
}

// Whatever others do; what had others' bytes is known by what all did, and never by the stream's own alone.
TEST(PlacementLogTest, AStreamsOwnPositionIsOfItsBlocksAndBytes) {
  TestedLog log(100);
  const LoggedPlace own{1000, 8};
  const PlacementLog::Key bytes = PlacementLog::mark_of_bound(3, 5, 0);
  const auto start = log.own_position(0);
  const auto among_all = log.position_among_all(0);
  EXPECT_NE(start, among_all);
  arrive(log, own);
  const auto with_own = log.own_position(0);
  arrive(log, {2000, 16}, 1);
  EXPECT_EQ(log.own_position(0), with_own);
  leave(log, own);
  EXPECT_EQ(log.own_position(0), start);
  EXPECT_NE(log.position_among_all(0), among_all);
  leave(log, {2000, 16}, 1);
  EXPECT_EQ(log.position_among_all(0), among_all);
  log.changed_hands(1, bytes);
  EXPECT_EQ(log.own_position(0), start);
  EXPECT_NE(log.position_among_all(0), among_all);
  log.changed_hands(0, PlacementLog::less(bytes));
  EXPECT_NE(log.own_position(0), start);
  EXPECT_EQ(log.own_position(0).key, start.key);
  log.append(start, {1, 8});
  EXPECT_EQ(log.exact(among_all, 8), PlacementLog::kNone);
}

TEST(PlacementLogTest, RequestsUpToAnEighthSmallerTheSmallestPlaceFirstThenTheOldest) {
  TestedLog log(100);
  log.note({1, 90});
  log.note({2, 80});
  log.note({3, 90});
  log.note({4, 80});
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
  TestedLog log(100);
  const PlacementLog::Position here = log.own_position(0);
  log.note({1, 80});
  log.note({2, 80});
  const PlacementLog::Number first = log.exact(here, 80);
  ASSERT_EQ(log.entry(first).place.address, 1);
  log.pass_over(first);
  const PlacementLog::Number second = log.exact(here, 80);
  ASSERT_NE(second, PlacementLog::kNone);
  EXPECT_EQ(log.entry(second).place.address, 2);
  log.audit();
  log.pass_over(second);
  EXPECT_EQ(log.exact(here, 80), PlacementLog::kNone);
  EXPECT_EQ(candidates(log, 0, 80), (Places{{1, 80}, {2, 80}}));
  log.audit();
  log.note_free(first, here, {1, 80}, 5, false);
  EXPECT_EQ(log.exact(here, 80), first);
  log.audit();
}

// One that moves to another sum may have others of its kind behind it there.
TEST(PlacementLogTest, WhatIsNotedOtherwiseHasHeirs) {
  TestedLog log(100);
  const PlacementLog::Position here = log.own_position(0);
  const PlacementLog::Position other{here.key, PlacementLog::mark_of({7, 7})};
  for (const Sectors address : {1, 2, 3}) log.note({address, 80});
  log.note_free(0, other, {1, 80}, 5, false);
  log.note_free(1, here, {2, 80}, 5, false);
  EXPECT_EQ(log.exact(here, 80), 1U);
  log.pass_over(1);
  EXPECT_EQ(log.exact(here, 80), 2U);
  log.audit();
}

// A state may be passed twice with much the same request.
TEST(PlacementLogTest, ASmallerRequestPrefersWhatCameNextAndGetsTheSameAgain) {
  TestedLog log(100);
  const PlacementLog::Position here = log.own_position(0);
  log.note({1, 80});
  log.note({2, 84});
  EXPECT_EQ(candidates(log, 0, 78), (Places{{1, 80}, {2, 84}}));
  log.follow(0);
  EXPECT_EQ(candidates(log, 0, 78), (Places{{2, 84}, {1, 80}}));
  EXPECT_EQ(candidates(log, 0, 80), (Places{{1, 80}, {2, 84}})) << "the same request needs no guess";
  log.append(here, {2, 84}, PlacementLog::kNone, {6, 1, false});
  log.follow(1);
  EXPECT_EQ(log.exact(here, 78), 2U);
  EXPECT_EQ(candidates(log, 0, 78).front(), (LoggedPlace{2, 84})) << "whatever came before it";
  log.audit();
}

TEST(PlacementLogTest, WhatCameNextIsKnownWithoutAWalkWhereItIsOfThisState) {
  TestedLog log(100);
  const PlacementLog::Position here = log.own_position(0);
  EXPECT_EQ(log.expected(here, 78), PlacementLog::kNone);
  log.note({1, 80});
  log.note({2, 84});
  EXPECT_EQ(log.expected(here, 78), PlacementLog::kNone) << "nothing was followed";
  log.follow(0);
  EXPECT_EQ(log.expected(here, 78), 1U);
  EXPECT_EQ(log.expected(here, 70), PlacementLog::kNone) << "too small for it";
  EXPECT_EQ(log.expected(here, 85), PlacementLog::kNone);
  arrive(log, {1, 78});
  EXPECT_EQ(log.expected(log.own_position(0), 78), PlacementLog::kNone) << "another state";
  leave(log, {1, 78});
  log.follow(1);
  EXPECT_EQ(log.expected(here, 78), PlacementLog::kNone) << "nothing came behind it";
}

// What came behind the origin, and behind what it served; once the origin has made way, behind the latter alone.
TEST(PlacementLogTest, AnEntryWhoseOriginHasMadeWayIsItsOwn) {
  TestedLog log(LogReach::kFewest);
  const PlacementLog::Position here = log.own_position(0);
  log.note({1, 80});
  log.note({2, 84});
  const auto fill = [&](std::size_t entries) {
    arrive(log, {5, 8});
    for (std::size_t i = 0; i < entries; ++i) log.note({static_cast<Sectors>(100 + i), 500});
    leave(log, {5, 8});
  };
  fill(LogReach::kFewest - 4);
  log.append(here, {1, 80}, PlacementLog::kNone, {4, 0, false});
  const PlacementLog::Number served = log.exact(here, 76);
  ASSERT_NE(served, PlacementLog::kNone);
  log.note({3, 40});
  log.follow(served);
  EXPECT_EQ(log.entry(log.expected(here, 78)).place, (LoggedPlace{2, 84})) << "behind the origin";
  EXPECT_EQ(log.entry(log.expected(here, 38)).place, (LoggedPlace{3, 40})) << "behind what it served";
  log.note({4, 84});  // where the origin was
  log.note({6, 90});  // and where its next was
  log.follow(served);
  EXPECT_EQ(log.expected(here, 84), PlacementLog::kNone) << "another's next";
  EXPECT_EQ(log.entry(log.expected(here, 38)).place, (LoggedPlace{3, 40}));
}

// A state has one entry, then others, then one again.
TEST(PlacementLogTest, TheFirstOfAStateIsFoundAloneAndBesideOthers) {
  TestedLog log(LogReach::kFewest);
  const PlacementLog::Position here = log.own_position(0);
  log.note({1, 80});
  EXPECT_EQ(log.exact(here, 80), 0U);
  EXPECT_EQ(log.exact(here, 81), PlacementLog::kNone);
  log.note({2, 90});
  EXPECT_EQ(log.exact(here, 80), 0U);
  EXPECT_EQ(log.exact(here, 90), 1U);
  log.note({3, 80});
  log.note({4, 80});
  log.audit();
  arrive(log, {5, 8});
  const auto drop = [&](Sectors entries) {
    for (Sectors i = 0; i < entries; ++i) log.note({100 + i, 500});
  };
  drop(static_cast<Sectors>(LogReach::kFewest) - 3);
  EXPECT_EQ(log.entry(log.exact(here, 80)).place.address, 3) << "the next of its kind";
  log.audit();
  drop(2);
  EXPECT_EQ(log.entry(log.exact(here, 80)).place.address, 4) << "and the one behind that";
  EXPECT_EQ(log.exact(here, 90), PlacementLog::kNone);
  log.audit();
}

// Of one state and size, by what is taken of the places: each is found, and what it is known as changes with it.
TEST(PlacementLogTest, EachWayToTakeThePlacesIsFoundHoweverManyThereAre) {
  constexpr int kWays = 200;
  TestedLog log(1000);
  const PlacementLog::Position here = log.own_position(0);
  const auto taken_in = [](int way) { return PlacementLog::mark_of({way, 1}); };
  const auto found_in = [&](int way) {
    log.arrived(0, {}, taken_in(way));
    const PlacementLog::Number found = log.exact(log.own_position(0), 8);
    log.came_free(0, taken_in(way));
    return found;
  };
  const auto way_of = [&](int way) { return PlacementLog::Position{here.key, taken_in(way)}; };
  for (int way = 0; way < kWays; ++way) log.append(way_of(way), {way, 8});
  for (int way = 0; way < kWays; ++way) EXPECT_EQ(found_in(way), static_cast<PlacementLog::Number>(way));
  log.note_free(7, way_of(kWays), {7, 8}, 1, false);
  EXPECT_EQ(found_in(7), PlacementLog::kNone);
  EXPECT_EQ(found_in(kWays), 7U);
  log.append(way_of(7), {300, 8});
  EXPECT_EQ(found_in(7), static_cast<PlacementLog::Number>(kWays));
  log.note_free(7, way_of(8), {7, 8}, 1, false);
  EXPECT_EQ(found_in(8), 8U) << "it was there first";
  log.audit();
}

TEST(PlacementLogTest, AFullRingDropsTheOldestAndGrowsWhenToldSo) {
  TestedLog log(2);
  for (Sectors address = 1; address <= 3; ++address) log.note({address, 8});
  EXPECT_EQ(candidates(log, 0, 8), (Places{{2, 8}, {3, 8}}));
  log.grow(3);
  log.grow(1);
  EXPECT_EQ(log.capacity(), 3U);
  log.note({4, 8});
  EXPECT_EQ(candidates(log, 0, 8), (Places{{2, 8}, {3, 8}, {4, 8}}));
  log.note({5, 8});
  EXPECT_EQ(candidates(log, 0, 8), (Places{{3, 8}, {4, 8}, {5, 8}}));
  log.audit();
  TestedLog none(0);
  none.note({1, 8});
  EXPECT_EQ(none.size(), 0U);
}

// Only the newest stay, with what served them, and are found where they were.
TEST(PlacementLogTest, WhatIsNeverAskedForMakesTheLogShort) {
  constexpr Sectors kMany = 8 * LogReach::kFewest;
  TestedLog log(kMany);
  Sectors address = 0;
  PlacementLog::Number before = PlacementLog::kNone;
  for (; address < kMany || log.room() > LogReach::kFewest; ++address) {
    ASSERT_LT(address, 4 * kMany);
    arrive(log, {address, 8});
    log.append(log.own_position(0), {address, 8}, 5, {0, before, false});
    before = log.exact(log.own_position(0), 8);
    leave(log, {address, 8});
  }
  EXPECT_EQ(log.size(), LogReach::kFewest);
  EXPECT_TRUE(log.has(static_cast<PlacementLog::Number>(LogReach::kFewest - 1)));
  EXPECT_FALSE(log.has(static_cast<PlacementLog::Number>(LogReach::kFewest)));
  EXPECT_FALSE(log.has(PlacementLog::kNone));
  log.audit();
  for (Sectors back = 1; back <= static_cast<Sectors>(LogReach::kFewest) + 1; ++back) {
    arrive(log, {address - back, 8});
    const PlacementLog::Number found = log.exact(log.own_position(0), 8);
    const bool is_kept = log.keeps(log.own_position(0));
    EXPECT_EQ(candidates(log, 0, 8).empty(), found == PlacementLog::kNone);
    leave(log, {address - back, 8});
    ASSERT_EQ(found != PlacementLog::kNone, is_kept && back <= static_cast<Sectors>(LogReach::kFewest)) << back;
    if (found == PlacementLog::kNone) continue;
    EXPECT_EQ(log.entry(found).place, (LoggedPlace{address - back, 8}));
    const PlacementLog::Number by = log.entry(found).served_by;
    ASSERT_TRUE(by == PlacementLog::kNone || by < log.size());
  }
}

// Each second entry was served by the one before it.
TEST(PlacementLogTest, WhatServedAnEntryIsKnownWhereAllMove) {
  constexpr Sectors kMany = 20'000;
  TestedLog log(kMany);
  Sectors address = 0;
  PlacementLog::Number before = PlacementLog::kNone;
  for (; address < kMany || log.room() > LogReach::kFewest; ++address) {
    arrive(log, {address, 8});
    log.append(log.own_position(0), {address, 8}, 5, {0, address % 2 == 1 ? before : PlacementLog::kNone, false});
    before = log.exact(log.own_position(0), 8);
    leave(log, {address, 8});
  }
  int served = 0;
  for (Sectors at = address - 900; at < address - 1; ++at) {
    arrive(log, {at, 8});
    const PlacementLog::Number found = log.exact(log.own_position(0), 8);
    leave(log, {at, 8});
    if (found == PlacementLog::kNone || at % 2 == 0) continue;
    const PlacementLog::Number by = log.entry(found).served_by;
    ASSERT_TRUE(log.has(by));
    ASSERT_EQ(log.entry(by).place.address, at - 1);
    ++served;
  }
  EXPECT_GT(served, 20);
}

// A step of so many states, of which those are noted that are not found. Returns how many were found.
std::size_t pass_through(TestedLog& log, Sectors first, Sectors states) {
  std::size_t found = 0;
  for (Sectors address = first; address < first + states; ++address) {
    arrive(log, {address, 8});
    const PlacementLog::Number number = log.exact(log.own_position(0), 8);
    found += number != PlacementLog::kNone ? 1 : 0;
    if (number != PlacementLog::kNone)
      log.follow(number);
    else
      log.append(log.own_position(0), {address, 8});
    leave(log, {address, 8});
  }
  return found;
}

TEST(PlacementLogTest, AStepThatComesAgainIsFoundWhereOnlyASampleIsKept) {
  constexpr auto kMany = static_cast<Sectors>(256 * LogReach::kFewest);
  for (const Sectors states : {3, 300, 5000}) {
    TestedLog log(static_cast<std::size_t>(kMany));
    const Sectors address = 4 * kMany;
    pass_through(log, 0, address);
    ASSERT_EQ(log.room(), LogReach::kFewest);
    EXPECT_EQ(pass_through(log, address, states), 0U);
    // What is not of the sample takes no room.
    Sectors kept = 2 * address;
    const auto is_kept = [&](Sectors place) {
      arrive(log, {place, 8});
      const bool keeps = log.keeps(log.own_position(0));
      leave(log, {place, 8});
      return keeps;
    };
    while (!is_kept(kept)) ++kept;
    pass_through(log, kept, 1);
    for (Sectors other = kept + 1; other < kept + 3000; ++other)
      if (!is_kept(other)) pass_through(log, other, 1);
    EXPECT_EQ(pass_through(log, kept, 1), is_kept(kept) ? 1U : 0U);
    const auto all = static_cast<std::size_t>(states);
    Sectors requests = 0;
    for (; requests < 8 * kMany && pass_through(log, address, states) != all;) requests += states;
    EXPECT_LT(requests, 8 * kMany - kMany) << states << ": before all are kept again";
    log.audit();
  }
}

// A shorter log is chosen when it is full, and made by the next entry: whatever comes between.
TEST(PlacementLogTest, AShorterLogIsShortAlthoughItWasForgottenOrGrewMeanwhile) {
  constexpr std::size_t kMany = 4 * LogReach::kFewest;
  for (const bool forgets : {false, true}) {
    TestedLog log(kMany);
    Sectors address = 0;
    for (; log.has_room() || log.room() < kMany || log.size() < kMany; ++address) {
      ASSERT_LT(address, static_cast<Sectors>(8 * kMany));
      pass_through(log, address, 1);
    }
    EXPECT_EQ(log.room(), kMany) << "chosen, and not made";
    if (forgets)
      log.forget();
    else
      log.grow(2 * kMany);
    pass_through(log, address, 100);
    EXPECT_EQ(log.room(), LogReach::kFewest);
    log.audit();
  }
}

TEST(PlacementLogTest, RandomProgramsAgreeWithAListOfEntries) {
  std::mt19937_64 random(20261121);
  struct Known {
    PlacementLog::Key key;
    LoggedPlace place;
  };
  std::size_t capacity = 400;
  TestedLog log(capacity);
  std::deque<Known> known;
  Places live;
  for (int round = 0; round < 6000; ++round) {
    if (round == 3500) log.grow(capacity = 700);
    const auto stream = static_cast<StreamNumber>(random() % 2);
    const auto sectors = static_cast<Sectors>(1 + random() % 30);
    const PlacementLog::Position position = log.own_position(stream);
    Places expected;
    for (const Known& entry : known)
      if (entry.key == position.key && entry.place.sectors >= sectors &&
          sectors >= entry.place.sectors - entry.place.sectors / 8 - 1)
        expected.push_back(entry.place);
    std::stable_sort(expected.begin(), expected.end(),
                     [](const auto& a, const auto& b) { return a.sectors < b.sectors; });
    const bool is_short =
        std::count_if(known.begin(), known.end(), [&](const Known& entry) { return entry.key == position.key; }) <= 64;
    if (is_short) {
      ASSERT_EQ(candidates(log, stream, sectors), expected) << "round " << round;
    }
    const PlacementLog::Number exact = log.exact(position, sectors);
    const auto first = std::find_if(known.begin(), known.end(), [&](const Known& entry) {
      return entry.key == position.key && entry.place.sectors == sectors;
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
      log.append(position, place);
      known.push_back({position.key, place});
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

TEST(PlacementLogTest, WhatIsExpectedMapsNothing) {
  TestedLog log(50'000);
  log.expect(50'000);
  const std::int64_t before = testing_host::mapped_pages();
  for (Sectors i = 0; i < 50'000; ++i) {
    ASSERT_TRUE(log.has_room()) << i;
    arrive(log, {i, 8});
    log.note({i, 8});
  }
  EXPECT_EQ(testing_host::mapped_pages(), before);
  EXPECT_EQ(log.size(), 50'000U);
  log.audit();
}

// It becomes longer where it is, which takes nothing.
TEST(PlacementLogTest, AFullLogHasRoomWhereItGrows) {
  TestedLog log(20'000);
  log.expect(20'000);
  int full_ones = 0;
  int with_room = 0;
  for (Sectors i = 0; log.size() != 20'000; ++i) {
    const bool is_full = log.size() != 0 && log.size() == log.room();
    full_ones += is_full ? 1 : 0;
    with_room += is_full && log.has_room() ? 1 : 0;
    arrive(log, {i, 8});
    log.note({i, 8});
  }
  EXPECT_EQ(full_ones, 5);
  EXPECT_EQ(with_room, 5);
}

// By the inverse of what states are multiplied with: hashes that differ in their lowest bits alone.
constexpr std::uint64_t kHashFactor = 0x9E3779B97F4A7C15ULL;
constexpr std::uint64_t inverse_of(std::uint64_t factor) {
  std::uint64_t inverse = factor;
  for (int i = 0; i < 6; ++i) inverse *= 2 - factor * inverse;
  return inverse;
}

TEST(PlacementLogTest, StatesThatTheIndexCannotHaveAreNotKept) {
  TestedLog log(2000);
  const auto position = [](std::uint64_t i) {
    return PlacementLog::Position{{(0xABCDEF0100000000ULL + i) * inverse_of(kHashFactor), i}, {}};
  };
  for (std::uint64_t i = 0; i < 600; ++i) {
    log.append(position(i), {100, 8});
    log.audit();
  }
  EXPECT_EQ(log.size(), 96U);
  EXPECT_NE(log.exact(position(0), 8), PlacementLog::kNone);
  EXPECT_EQ(log.exact(position(599), 8), PlacementLog::kNone);
  log.append({{1, 1}, {}}, {100, 8});
  EXPECT_NE(log.exact({{1, 1}, {}}, 8), PlacementLog::kNone);
  log.audit();
}

// They are found by a walk along their state's.
TEST(PlacementLogTest, EntriesThatTheIndexCannotHaveAreNotForemost) {
  TestedLog log(2000);
  const auto position = [](std::uint64_t i) {
    const std::uint64_t sum = (0xABCDEF0100000000ULL + i) * inverse_of(kHashFactor);
    return PlacementLog::Position{{5, 5}, {(sum - 5 - 8) * inverse_of(0xC2B2AE3D27D4EB4FULL), i}};
  };
  for (std::uint64_t i = 0; i < 600; ++i) log.append(position(i), {static_cast<Sectors>(i), 8});
  EXPECT_EQ(log.size(), 600U);
  EXPECT_NE(log.exact(position(7), 8), PlacementLog::kNone);
  EXPECT_EQ(log.exact(position(599), 8), PlacementLog::kNone);
  std::vector<PlacementLog::Number> found;
  log.candidates(position(40), 8, found);
  EXPECT_EQ(found.size(), 64U);
  log.audit();
  for (std::uint64_t i = 0; i < 1000; ++i) log.append({{6, i}, {}}, {static_cast<Sectors>(i), 8});
  log.audit();
}

}  // namespace
}  // namespace cistern
