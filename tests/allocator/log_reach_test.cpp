#include "allocator/log_reach.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace cistern {
namespace {

constexpr std::size_t kMost = 16 * LogReach::kFewest;

// A log that keeps as many entries as it is told to.
struct Log {
  LogReach reach;
  std::size_t entries = 0;
  std::size_t room = 0;

  void append(std::size_t count) {
    for (; count > 0; --count) {
      if (entries == room) room = reach.room(room, kMost);
      entries = entries < room ? entries + 1 : room;
    }
  }
  // Entries come; every now and then one is asked for that is so many older than the newest.
  void append_and_ask(std::size_t count, std::size_t age) {
    for (std::size_t i = 0; i < count; ++i) {
      append(1);
      if (i % 100 == 0 && age < entries) reach.asked_for(age);
    }
  }
  // How many come until there is room for so many.
  std::size_t until(std::size_t wanted) {
    std::size_t count = 0;
    for (; room != wanted && count < 100 * kMost; ++count) append(1);
    return count;
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
  const std::size_t in_vain = log.until(LogReach::kFewest);
  EXPECT_GT(in_vain, kMost) << "a step as long as the log comes again";
  EXPECT_LE(in_vain, 2 * kMost);
}

TEST(LogReachTest, WhatIsAskedForFromFarIsKept) {
  Log log;
  log.append(kMost);
  log.append_and_ask(20 * kMost, kMost - 10);
  EXPECT_EQ(log.room, kMost);
}

TEST(LogReachTest, AsFarBackAsItIsAskedFor) {
  Log log;
  log.append(kMost);
  log.append_and_ask(3 * kMost, 900);
  EXPECT_EQ(log.room, 4 * LogReach::kFewest);
}

TEST(LogReachTest, PausesGrowUpToALimit) {
  Log log;
  log.append(kMost);
  for (const std::size_t pause : {1, 2, 4, 8, 8}) {
    static_cast<void>(log.until(LogReach::kFewest));
    const std::size_t paused = log.until(2 * LogReach::kFewest);
    EXPECT_GE(paused, pause * kMost);
    EXPECT_LE(paused, pause * kMost + 2 * LogReach::kFewest);
    static_cast<void>(log.until(kMost));
  }
}

// In a pause, too: what is asked for is as old as there is anything.
TEST(LogReachTest, WhatComesAgainEndsAPause) {
  Log log;
  log.append(kMost);
  for (int times = 0; times < 4; ++times) {
    static_cast<void>(log.until(LogReach::kFewest));
    static_cast<void>(log.until(kMost));
  }
  static_cast<void>(log.until(LogReach::kFewest));
  log.append_and_ask(2 * LogReach::kFewest, LogReach::kFewest - 10);
  EXPECT_GE(log.room, 2 * LogReach::kFewest);
  static_cast<void>(log.until(kMost));
  static_cast<void>(log.until(LogReach::kFewest));
  EXPECT_LE(log.until(2 * LogReach::kFewest), kMost + 2 * LogReach::kFewest) << "the next pause is a first one";
}

}  // namespace
}  // namespace cistern
