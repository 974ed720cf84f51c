// What came last with a remainder, found without a lock: by one thread, and while it changes, in every order.
#include "allocator/latest_finds.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/allocator/every_order.h"
#include "tests/races/choices.h"

namespace cistern {
namespace {

using testing::in_every_order;

TEST(LatestFinds, TheOneThatCameLastWithARemainderIsFound) {
  int one = 0;
  int other = 0;
  LatestFinds<int, 16> finds;
  EXPECT_EQ(finds.find(1), nullptr);
  finds.put(1, &one);
  finds.put(2, &other);
  EXPECT_EQ(finds.find(1), &one);
  EXPECT_EQ(finds.find(2), &other);
  EXPECT_EQ(finds.find(17), nullptr) << "it has the same place";
  finds.put(17, &other);
  EXPECT_EQ(finds.find(1), nullptr);
  EXPECT_EQ(finds.find(17), &other);
}

TEST(LatestFinds, WhatIsErasedIsNotFoundAndNothingElseGoesWithIt) {
  int one = 0;
  LatestFinds<int, 16> finds;
  finds.put(1, &one);
  finds.erase(17);
  EXPECT_EQ(finds.find(1), &one) << "the key was another";
  finds.erase(1);
  EXPECT_EQ(finds.find(1), nullptr);
}

using LatestValue = testing::DelayingProcessors::Atomic<int>;
struct LatestWorld {
  LatestFinds<LatestValue, 16, testing::DelayingProcessors> finds;
  LatestValue before{1};
  LatestValue after{0};
  const LatestValue* found = nullptr;
  bool is_whole = true;
};
std::unique_ptr<LatestWorld> new_latest_world() {
  auto world = std::make_unique<LatestWorld>();
  world->finds.put(1, &world->before);
  return world;
}
constexpr int kLatestStops = 8;

TEST(LatestFindsInterleaving, AKeyThatComesNeverFindsWhatGoes) {
  in_every_order(
      kLatestStops, new_latest_world, [](LatestWorld& world) { world.finds.put(17, &world.after); },
      [](LatestWorld& world) { world.found = world.finds.find(17); },
      [](LatestWorld& world, const Choices& order) {
        EXPECT_TRUE(world.found == nullptr || world.found == &world.after) << order;
        EXPECT_EQ(world.finds.find(17), &world.after) << order;
      });
}

TEST(LatestFindsInterleaving, AKeyThatGoesFindsWhatItHadOrWhatComes) {
  const std::size_t orders = in_every_order(
      kLatestStops, new_latest_world,
      [](LatestWorld& world) {
        world.after.store(1, std::memory_order_relaxed);
        world.finds.put(17, &world.after);
      },
      [](LatestWorld& world) {
        world.found = world.finds.find(1);
        if (world.found != nullptr) world.is_whole = world.found->load(std::memory_order_relaxed) == 1;
      },
      [](LatestWorld& world, const Choices& order) {
        EXPECT_TRUE(world.found == nullptr || world.found == &world.before || world.found == &world.after) << order;
        EXPECT_TRUE(world.is_whole) << order;
        EXPECT_EQ(world.finds.find(1), nullptr) << order;
      });
  EXPECT_GT(orders, 20U);
}

}  // namespace
}  // namespace cistern
