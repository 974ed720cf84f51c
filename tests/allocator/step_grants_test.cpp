// Room for steps that streams are given at once: every order of two threads' steps, to a bound.
#include "allocator/step_grants.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>

#include "tests/allocator/every_order.h"
#include "tests/races/choices.h"

namespace cistern {
namespace {

using testing::in_every_order;

TEST(StepGrants, AreAllTogetherNoMoreThanTheMost) {
  StepGrants grants;
  EXPECT_TRUE(grants.grant(60, 100));
  EXPECT_EQ(grants.left_beside(0, 100), 40U);
  EXPECT_EQ(grants.left_beside(60, 100), 100U) << "its own it may have again";
  EXPECT_FALSE(grants.grant(41, 100));
  EXPECT_TRUE(grants.grant(40, 100));
  EXPECT_EQ(grants.left_beside(0, 50), 0U) << "there may be less of it than was given";
  EXPECT_TRUE(grants.grant(0, 50));
  grants.take_back(100);
  EXPECT_EQ(grants.left_beside(0, 100), 100U);
}

constexpr std::size_t kMostGranted = 100;
struct AskingWorld {
  void come_and_go(std::size_t thread) {
    ask(thread, 60);
    if (has[thread] != 0) {
      grants.take_back(30);
      has[thread] -= 30;
    }
    ask(thread, 40);
  }
  void ask(std::size_t thread, std::size_t steps) {
    if (!grants.grant(steps, kMostGranted)) return;
    has[thread] += steps;
    if (has[0] + has[1] > kMostGranted) is_too_much = true;
  }

  BasicStepGrants<testing::DelayingProcessors> grants;
  std::array<std::size_t, 2> has{};
  bool is_too_much = false;
};

TEST(StepGrantsInterleaving, TwoThatAskAtOnceGetNoMoreThanThereIs) {
  const std::size_t orders = in_every_order(
      8, [] { return std::make_unique<AskingWorld>(); }, [](AskingWorld& world) { world.come_and_go(0); },
      [](AskingWorld& world) { world.come_and_go(1); },
      [](AskingWorld& world, const Choices& order) {
        EXPECT_FALSE(world.is_too_much) << order;
        EXPECT_EQ(world.grants.left_beside(0, kMostGranted), kMostGranted - world.has[0] - world.has[1]) << order;
      });
  EXPECT_GT(orders, 20U);
}

}  // namespace
}  // namespace cistern
