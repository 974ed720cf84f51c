// Where a log of steps says that the stream was as it is now: beside one that looks at all places.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "allocator/step_log.h"
#include "tests/property.h"

namespace cistern {
namespace {

using Kind = StreamStep::Kind;

StreamStep step_of(Kind kind, std::uint64_t number) {
  return {kind, {(number + 1) << 20, 512 * (1 + number % 5), 500 * (1 + number % 5), PoolKind::small}, {}};
}

// Keeps all that it is told, and the states by the blocks that came and went, each by itself.
class PlainLog {
 public:
  void write(const StreamStep& step) {
    change(step);
    steps_.push_back(step);
    states_.push_back(state_);
  }
  void begin() { *this = {}; }
  [[nodiscard]] std::size_t size() const { return steps_.size(); }
  // Whether that is a place that may be told.
  [[nodiscard]] bool is_as_now(std::size_t there) const {
    const std::size_t context = StepLog::kContext;
    return there >= context && there < size() && states_[there - 1] == states_.back() &&
           std::equal(steps_.end() - static_cast<std::ptrdiff_t>(context), steps_.end(),
                      steps_.begin() + static_cast<std::ptrdiff_t>(there - context));
  }
  // The last one; 0: none.
  [[nodiscard]] std::size_t find() const {
    std::size_t there = size() - 1;
    while (there != 0 && !is_as_now(there)) --there;
    return there;
  }

 private:
  using State = std::vector<std::pair<std::uint64_t, int>>;  // blocks and how often each counts, by address

  void change(const StreamStep& step) {
    const auto times = static_cast<int>(StreamStep::times(step.kind()));
    const auto at = std::lower_bound(state_.begin(), state_.end(), std::pair{step.address(), -1000});
    if (at == state_.end() || at->first != step.address())
      state_.insert(at, {step.address(), times});
    else if ((at->second += times) == 0)
      state_.erase(at);
  }

  std::vector<StreamStep> steps_;
  std::vector<State> states_;  // behind each of them
  State state_;
};

class StepLogTest : public testing::Test {
 protected:
  void have_room(std::size_t steps) { static_cast<void>(log.move_to(StepLog::Room::of(steps))); }
  void write(const StreamStep& step) {
    log.write(step);
    plain.write(step);
  }
  void begin() {
    log.begin();
    plain.begin();
  }
  // `count` pairs of steps that come and go.
  void turns(std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t i = first; i < first + count; ++i) {
      write(step_of(Kind::allocation, i));
      write(step_of(Kind::free, i));
    }
  }

  StepLog log;
  PlainLog plain;
};

TEST_F(StepLogTest, TheLastPlaceThatWasAsNowIsFound) {
  have_room(1000);
  begin();
  turns(0, 20);
  EXPECT_EQ(log.find(), 0U);
  turns(0, 7);
  EXPECT_EQ(log.find(), 0U);  // of what led here 14 steps are known
  turns(7, 1);
  EXPECT_EQ(log.find(), 16U);
  turns(100, 5);
  EXPECT_EQ(log.find(), 0U);
  turns(0, 12);
  EXPECT_EQ(log.find(), 24U);
  turns(0, 8);
  EXPECT_EQ(log.find(), 40U + 16 + 10 + 16);  // not the first one
}

TEST_F(StepLogTest, TheSameStepsFromAnotherStateAreAnotherPlace) {
  have_room(1000);
  begin();
  turns(0, 20);
  write(step_of(Kind::allocation, 500));
  turns(0, 20);
  EXPECT_EQ(log.find(), 0U);
  write(step_of(Kind::free, 500));
  turns(0, 8);
  EXPECT_EQ(log.find(), 16U);
}

// Some of so many states have a hash of 32 bits in common with another one.
TEST_F(StepLogTest, StatesThatHaveOneHashAreToldApart) {
  constexpr std::uint64_t kStates = 160000;
  constexpr std::uint64_t kTurns = StepLog::kContext / 2;
  have_room(kStates * (2 * kTurns + 1));
  log.begin();
  for (std::uint64_t i = 0; i < kStates; ++i) {
    log.write(step_of(Kind::allocation, 100 + i));
    for (std::uint64_t step = 0; step < 2 * kTurns; ++step)
      log.write(step_of(step % 2 == 0 ? Kind::allocation : Kind::free, step / 2));
    ASSERT_EQ(log.find(), 0U) << i;
  }
}

TEST_F(StepLogTest, OtherStepsToTheSameStateAreAnotherPlace) {
  const auto free_with = [](std::int64_t splits) {
    return StreamStep(Kind::free, {1 << 20, 512, 500, PoolKind::small}, {splits, 512});
  };
  have_room(1000);
  begin();
  write(step_of(Kind::allocation, 0));
  write(free_with(1));
  turns(1, 8);
  EXPECT_EQ(log.find(), 0U);
  turns(30, 8);
  write(step_of(Kind::allocation, 0));
  write(free_with(0));
  turns(1, 7);
  EXPECT_EQ(log.find(), 0U);
  turns(30, 8);
  write(step_of(Kind::allocation, 0));
  write(free_with(0));
  turns(1, 7);
  EXPECT_EQ(log.find(), 50U);
}

TEST_F(StepLogTest, PlacesAreKnownWhereThereComesMoreRoom) {
  have_room(4000);
  begin();
  write(step_of(Kind::allocation, 500));  // or the sums that it keeps were 0
  turns(0, 90);
  have_room(8000);
  turns(40, 8);
  EXPECT_EQ(log.find(), 97U);
}

TEST_F(StepLogTest, WhatWasBeforeItBeganIsNotKnown) {
  have_room(1000);
  begin();
  turns(0, 20);
  begin();
  EXPECT_EQ(log.size(), 0U);
  for (std::uint64_t i = 0; i < 20; ++i) {
    turns(i, 1);
    EXPECT_EQ(log.find(), 0U) << i;
  }
}

TEST_F(StepLogTest, ARoundBeginsWhereItIsNow) {
  have_room(100);
  begin();
  turns(90, 3);
  turns(0, 10);
  const StreamStep* const round = log.steps() + 6;
  const std::vector<StreamStep> expected{round[5], round[6], round[7], round[8], round[0],
                                         round[1], round[2], round[3], round[4]};
  log.begin_with(round, round + 5, 9);
  ASSERT_EQ(log.size(), expected.size());
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), log.steps()));
}

TEST_F(StepLogTest, ARoundThatItBeginsWithIsKnown) {
  have_room(4000);
  begin();
  turns(90, 3);
  turns(0, 20);
  turns(0, 5);
  log.begin_with(log.steps() + 6, log.steps() + 16, 40);
  turns(5, 8);
  EXPECT_EQ(log.find(), 16U);
}

TEST_F(StepLogTest, WhereWhatWasFollowedWasFirstIsKnown) {
  have_room(4000);
  begin();
  turns(0, 20);
  for (std::uint64_t i = 0; i < 20; ++i)
    for (const Kind kind : {Kind::allocation, Kind::free}) log.write_followed(step_of(kind, i));
  EXPECT_EQ(log.size(), 80U);
  turns(0, 8);
  EXPECT_EQ(log.find(), 16U);
}

TEST_F(StepLogTest, AReturnToItsBeginningIsToldOfTheLastOne) {
  have_room(100);
  begin();
  turns(0, 3);
  write(step_of(Kind::allocation, 7));
  EXPECT_EQ(log.last_return(), 6U);
  write(step_of(Kind::use, 7));
  write(step_of(Kind::wait, 7));
  EXPECT_EQ(log.last_return(), 6U);
  write(step_of(Kind::done, 7));
  EXPECT_EQ(log.last_return(), 10U);
  begin();
  EXPECT_EQ(log.last_return(), 0U);
}

TEST_F(StepLogTest, ThereIsRoomForAsManyAsWasAskedFor) {
  for (const std::size_t steps : {1, 2, 63, 64, 65, 700}) {
    have_room(steps);
    EXPECT_EQ(log.room(), steps);
    begin();
    for (std::size_t i = 0; i < steps; ++i) {
      EXPECT_FALSE(log.is_full());
      write(step_of(i % 2 == 0 ? Kind::allocation : Kind::free, i / 2 % 9));
    }
    EXPECT_TRUE(log.is_full());
  }
  static_cast<void>(log.give_up_room());
  EXPECT_EQ(log.room(), 0U);
  EXPECT_TRUE(log.is_full());
}

// Steps of loops in loops, that end anywhere, from states that differ; more room now and then.
TEST_F(StepLogTest, WhatItTellsIsSoAndItTellsMostOfIt) {
  int known = 0;
  int found = 0;
  for (long seed = 0; seed < scaled(40); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    static_cast<void>(log.give_up_room());
    have_room(300 + random() % 300);
    begin();
    std::vector<std::vector<std::uint64_t>> loops(3);
    for (auto& loop : loops)
      for (std::uint64_t i = 2 + random() % 12; i != 0; --i) loop.push_back(random() % 30);
    std::vector<bool> is_live(30);
    while (!log.is_full()) {
      const auto& loop = loops[random() % 3];
      const std::size_t end = loop.size() * (1 + random() % 6) - (random() % 4 == 0 ? random() % loop.size() : 0);
      for (std::size_t i = 0; i < end && !log.is_full(); ++i) {
        const std::uint64_t block = loop[i % loop.size()];
        is_live[block] = !is_live[block];
        write(step_of(is_live[block] ? Kind::allocation : Kind::free, block));
        const std::size_t there = log.find();
        ASSERT_TRUE(there == 0 || plain.is_as_now(there)) << there << " of " << log.size();
        const std::size_t last = plain.find();
        known += static_cast<int>(last != 0);
        found += static_cast<int>(last != 0 && there == last);
      }
      if (random() % 20 == 0 && log.room() < 3000) have_room(log.room() + random() % 500);
    }
  }
  EXPECT_GT(known, 1000);
  EXPECT_GT(found, known * 8 / 10);
}

}  // namespace
}  // namespace cistern
