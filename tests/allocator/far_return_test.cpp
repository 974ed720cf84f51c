#include "allocator/far_return.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace cistern {
namespace {

constexpr std::uint64_t kMost = std::uint64_t{1} << 20;
constexpr std::uint64_t kRound = 10000;

struct Return {
  std::uint64_t step;
  std::uint64_t steps;
};
using NumberOf = std::function<std::uint64_t(std::uint64_t step)>;

std::uint64_t none(std::uint64_t /*step*/) { return 0; }

// What is told of as many steps, after each of which the stream is in a state.
std::vector<Return> returns_of(FarReturn& far, const NumberOf& state_of, std::uint64_t steps,
                               const NumberOf& followed_of = none) {
  std::vector<Return> returns;
  far.begin(state_of(0), 0, followed_of(0));
  for (std::uint64_t step = 1; step <= steps; ++step) {
    EXPECT_LE(far.due(), step - 1 + kMost);
    if (!far.is_due(state_of(step), step)) continue;
    if (const std::uint64_t led_back = far.look(state_of(step), step, followed_of(step)); led_back != 0)
      returns.push_back({step, led_back});
  }
  return returns;
}

TEST(FarReturn, TellsOfAStateThatComesAgainWithinThreeRounds) {
  FarReturn far(kMost);
  const std::vector<Return> returns = returns_of(
      far, [](std::uint64_t step) { return 1 + step % kRound; }, 3 * kRound);
  ASSERT_FALSE(returns.empty());
  EXPECT_EQ(returns.front().steps, kRound);
}

// Fifty times the same twenty states, in ten places of a round.
TEST(FarReturn, RoundsWithinARoundAreNone) {
  FarReturn far(kMost);
  const auto state_of = [](std::uint64_t step) { return 1 + step % kRound / 1000 * 1000 + step % 20; };
  const std::vector<Return> returns = returns_of(far, state_of, 6 * kRound);
  ASSERT_FALSE(returns.empty());
  for (const Return& found : returns) {
    EXPECT_GT(found.steps, kRound - 1000) << found.step;
    EXPECT_EQ(found.steps % 20, 0U) << found.step;
  }
}

TEST(FarReturn, APairThatTurnsLooksSeldom) {
  FarReturn far(kMost);
  far.begin(0, 0, 0);
  std::uint64_t looks = 0;
  for (std::uint64_t step = 1; step <= 100 * FarReturn::kQuiet; ++step) {
    if (!far.is_due(step % 2, step)) continue;
    EXPECT_EQ(far.look(step % 2, step, 0), 0U);
    ++looks;
  }
  EXPECT_LT(looks, 220U);
}

TEST(FarReturn, WhatIsFollowedIsNone) {
  FarReturn far(kMost);
  const auto state_of = [](std::uint64_t step) { return 1 + step % kRound; };
  EXPECT_TRUE(returns_of(far, state_of, 20 * kRound, [](std::uint64_t step) { return step; }).empty());
  EXPECT_FALSE(returns_of(far, state_of, 20 * kRound, [](std::uint64_t step) { return step / 2; }).empty());
}

// A while before another state is looked for.
constexpr std::uint64_t kBegin = 6 * kRound;

TEST(FarReturn, WhoRestsIsToldOfNothingUntilTheNextRoundIsOver) {
  FarReturn far(kMost);
  const auto state_of = [](std::uint64_t step) { return 1 + step % kRound; };
  ASSERT_FALSE(returns_of(far, state_of, kBegin).empty());
  far.rest(kBegin, kRound, 0);
  EXPECT_GE(far.due(), kBegin + kRound);
  EXPECT_LE(far.due(), kBegin + kRound + kRound / 8);
  for (std::uint64_t step = kBegin + 1; step < far.due(); ++step)
    EXPECT_FALSE(far.is_due(state_of(step), step)) << step;
  // A part of a longer round, of which nothing is followed.
  std::uint64_t found = 0;
  for (std::uint64_t step = far.due(); step < 9 * kRound && found == 0; ++step)
    if (far.is_due(state_of(step), step)) found = far.look(state_of(step), step, 0);
  EXPECT_GT(found, 2 * kRound);
}

// The same state comes again and again, and is not followed: room for ever more rounds would follow none of them.
TEST(FarReturn, WhoRestedInVainRestsUntilTheNextState) {
  const auto state_of = [](std::uint64_t step) { return 1 + step % kRound; };
  const auto due_after_two = [&](std::uint64_t followed) {
    FarReturn far(kMost);
    static_cast<void>(returns_of(far, state_of, kBegin));
    far.rest(kBegin, kRound, 0);
    const std::uint64_t first = far.due();
    EXPECT_EQ(far.look(0, first, 0), 0U);
    far.rest(first, kRound, followed);
    return far.due() - first;
  };
  EXPECT_GT(due_after_two(0), 2 * kRound);
  EXPECT_EQ(due_after_two(kRound), kRound + kRound / 8);
}

// Not beyond the next state, which is looked for then.
TEST(FarReturn, NobodyRestsWhenTheNextStateIsDue) {
  const auto state_of = [](std::uint64_t step) { return 1 + step % kRound; };
  FarReturn far(4 * kRound);
  static_cast<void>(returns_of(far, state_of, kBegin));
  far.rest(kBegin, 100 * kRound, 0);
  EXPECT_LE(far.due(), 10 * kRound);
}

TEST(FarReturn, AStateThatNeverComesIsReplacedByLaterOnes) {
  FarReturn far(4 * FarReturn::kQuiet);
  EXPECT_TRUE(returns_of(
                  far, [](std::uint64_t step) { return step; }, 100000)
                  .empty());
  // The longest that one is looked for is what was asked for: a longer round is not found.
  const auto long_round = [](std::uint64_t step) { return 1 + step % (5 * FarReturn::kQuiet); };
  EXPECT_TRUE(returns_of(far, long_round, 100000).empty());
  const auto round = [](std::uint64_t step) { return 1 + step % (3 * FarReturn::kQuiet); };
  EXPECT_FALSE(returns_of(far, round, 100000).empty());
}

}  // namespace
}  // namespace cistern
