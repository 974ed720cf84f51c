#include "allocator/log_reach.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace cistern {
namespace {

constexpr std::size_t kMost = 16 * LogReach::kFewest;

// A log that keeps as many entries as it is told to.
struct Log {
  explicit Log(std::size_t largest = kMost) : most(largest) {}
  std::size_t most;
  LogReach reach;
  std::size_t entries = 0;
  std::size_t room = 0;

  void append(std::size_t count) {
    for (; count > 0; --count) {
      reach.comes(true);
      if (entries == room) room = reach.room(room, most);
      entries = entries < room ? entries + 1 : room;
    }
  }
  // Entries come; every now and then one is asked for that is so many older than the newest.
  void append_and_ask(std::size_t count, std::size_t age, std::size_t one_in = 50) {
    for (std::size_t i = 0; i < count; ++i) {
      append(1);
      if (i % one_in == 0 && age < entries) reach.asked_for(age);
    }
  }
  // It is full of entries some of which were asked for, from near.
  void fill() { append_and_ask(most, 0); }
  // How many come until there is room for so many; every now and then one is asked for that is so much older, if any
  // is.
  std::size_t until(std::size_t wanted, std::size_t age = 0) {
    std::size_t count = 0;
    for (; room != wanted && count < 100 * most; ++count) {
      append(1);
      if (age != 0 && count % 50 == 0) reach.asked_for(age);
    }
    return count;
  }
  // Of how many sums in a row one is kept.
  [[nodiscard]] std::size_t one_in() const {
    constexpr std::uint64_t kSums = 1024;
    std::uint64_t kept = 0;
    for (std::uint64_t sum = 0; sum < kSums; ++sum) kept += reach.is_kept(sum) ? 1 : 0;
    return kSums / kept;
  }
};

TEST(LogReachTest, AllIsKeptThatMayBeFromTheFirstEntryOn) {
  Log log;
  for (std::size_t room = LogReach::kFewest; room <= kMost; room *= 2) {
    log.append(1);
    EXPECT_EQ(log.room, room);
    log.append(room - log.entries);
    EXPECT_EQ(log.entries, room) << "none makes way for another";
  }
}

TEST(LogReachTest, WhatIsNeverAskedForIsNotKept) {
  Log log;
  log.append(kMost);
  EXPECT_EQ(log.room, kMost);
  log.append(1);
  EXPECT_EQ(log.room, LogReach::kFewest);
}

// Unless some is, be it from near.
TEST(LogReachTest, WhereOneInSixtyFourIsAskedForAllIsKeptForTwoTurns) {
  Log log;
  log.append_and_ask(kMost, 0, 64);
  const std::size_t in_vain = log.until(LogReach::kFewest);
  EXPECT_GT(in_vain, kMost) << "a step as long as the log comes again";
  EXPECT_LE(in_vain, 2 * kMost);
  Log seldom;
  seldom.append_and_ask(kMost, 0, 66);
  EXPECT_LE(seldom.until(LogReach::kFewest), 1U);
}

TEST(LogReachTest, WhatIsAskedForFromFarIsKept) {
  Log log;
  log.fill();
  log.append_and_ask(20 * kMost, kMost - 10);
  EXPECT_EQ(log.room, kMost);
}

TEST(LogReachTest, AsFarBackAsItIsAskedFor) {
  Log log;
  log.fill();
  log.append_and_ask(3 * kMost, 900);
  EXPECT_EQ(log.room, 4 * LogReach::kFewest);
}

// Older than what few entries are worth, and nearer than half of all.
constexpr std::size_t kSomewhatOld = LogReach::kFewest / 2;
constexpr std::size_t kRoomForThat = 2 * LogReach::kFewest;

TEST(LogReachTest, PausesGrowUpToALimit) {
  Log log;
  log.fill();
  for (const std::size_t pause : {1, 2, 4, 8, 8}) {
    static_cast<void>(log.until(kRoomForThat, kSomewhatOld));
    const std::size_t paused = log.until(2 * kRoomForThat, kSomewhatOld);
    EXPECT_GE(paused, pause * kMost);
    EXPECT_LE(paused, pause * kMost + 2 * kRoomForThat);
    static_cast<void>(log.until(kMost, kSomewhatOld));
  }
}

// In a pause, too: what is asked for is as old as there is anything.
TEST(LogReachTest, WhatComesAgainEndsAPause) {
  Log log;
  log.fill();
  for (int times = 0; times < 4; ++times) {
    static_cast<void>(log.until(kRoomForThat, kSomewhatOld));
    static_cast<void>(log.until(kMost, kSomewhatOld));
  }
  static_cast<void>(log.until(kRoomForThat, kSomewhatOld));
  log.append_and_ask(2 * kRoomForThat, kRoomForThat - 10);
  EXPECT_GE(log.room, 2 * kRoomForThat);
  static_cast<void>(log.until(kMost, kSomewhatOld));
  static_cast<void>(log.until(kRoomForThat, kSomewhatOld));
  EXPECT_LE(log.until(2 * kRoomForThat, kSomewhatOld), kMost + 2 * kRoomForThat) << "the next pause is a first one";
}

// Large enough that no sample ends by itself meanwhile.
constexpr std::size_t kLarge = 256 * LogReach::kFewest;

// A log that keeps a sample.
Log sampled(std::size_t most = kLarge) {
  Log log(most);
  log.append(most);
  static_cast<void>(log.until(LogReach::kFewest));
  return log;
}

TEST(LogReachTest, WhereNothingOldIsAskedForASampleIsKeptNowOfManyNowOfFew) {
  Log log(kLarge);
  log.append(kLarge);
  EXPECT_EQ(log.one_in(), 1U);
  static_cast<void>(log.until(LogReach::kFewest));
  for (const std::size_t one_in : {8, 128, 8, 128, 8}) {
    EXPECT_EQ(log.one_in(), one_in);
    for (std::size_t i = 1; i < one_in * LogReach::kFewest; ++i) log.reach.comes(i % one_in == 0);
    EXPECT_EQ(log.one_in(), one_in) << "until the few were replaced";
    log.append(1);
  }
  EXPECT_EQ(log.room, LogReach::kFewest);
}

// However few states there are, some turn is of one of them.
TEST(LogReachTest, EachTurnsSampleIsOfOtherStates) {
  Log log = sampled();
  std::size_t kept = 0;
  for (std::size_t turn = 0; turn < 16; ++turn) {
    const std::size_t one_in = log.one_in();
    kept += one_in == 8 && log.reach.is_kept(5) ? 1 : 0;
    for (std::size_t i = 0; i < one_in * LogReach::kFewest; ++i) log.reach.comes(false);
  }
  EXPECT_EQ(kept, 1U) << "of eight turns";
}

TEST(LogReachTest, AllIsKeptAgainWhereMuchOfTheSampleIsFound) {
  Log log = sampled();
  log.append(100);
  for (int found = 1; found < 8; ++found) {
    log.append(2);
    log.reach.asked_for(64);
    EXPECT_EQ(log.one_in(), 8U);
  }
  log.reach.asked_for(64);
  EXPECT_EQ(log.one_in(), 1U);
  log.append(1);
  EXPECT_EQ(log.room, 2 * LogReach::kFewest) << "it grows at once, for what was found is 512 states old";
}

// Likewise, but few are enough for it.
TEST(LogReachTest, WhatIsFoundNearbyMakesNoLogLarge) {
  Log log = sampled();
  for (int found = 1; found <= 8; ++found) log.reach.asked_for(63);
  EXPECT_EQ(log.one_in(), 1U);
  EXPECT_GE(log.until(2 * LogReach::kFewest), 2 * kLarge) << "the second pause";
}

TEST(LogReachTest, AfterALongTimeAllIsKeptOnceMore) {
  constexpr std::size_t kSmall = 2 * LogReach::kFewest;
  Log log = sampled(kSmall);
  for (const std::size_t pause : {8, 16, 32, 64, 64}) {
    std::size_t came = 0;
    for (; !log.reach.is_kept(1) || !log.reach.is_kept(2); ++came) log.append(1);
    EXPECT_EQ(came, pause * kSmall);
    static_cast<void>(log.until(kSmall));
    static_cast<void>(log.until(LogReach::kFewest));
  }
}

TEST(LogReachTest, WhatWasAskedForLongAgoKeepsNoLogLarge) {
  Log log;
  log.fill();
  static_cast<void>(log.until(LogReach::kFewest));
  ASSERT_NE(log.one_in(), 1U);
  for (std::size_t came = 0; log.one_in() != 1 && came < 100 * kMost; ++came) log.append(1);
  EXPECT_LE(log.until(kMost), kMost);
  EXPECT_LE(log.until(LogReach::kFewest), kMost / 2 + 1);
}

TEST(LogReachTest, AFewThatAreFoundAreNoStep) {
  Log log = sampled();
  for (int i = 0; i < 1000; ++i) {
    log.append(5);
    log.reach.asked_for(50);
  }
  EXPECT_NE(log.one_in(), 1U);
}

// Of as few as there may be at most, all.
TEST(LogReachTest, ALogThatCannotBeLargeIsNoSample) {
  LogReach reach;
  std::size_t room = LogReach::kFewest / 2;
  for (int i = 0; i < 10'000; ++i) room = reach.room(room, LogReach::kFewest / 2);
  EXPECT_EQ(room, LogReach::kFewest / 2);
  EXPECT_TRUE(reach.is_kept(1));
}

}  // namespace
}  // namespace cistern
