// What came last with a remainder, found without a lock: by one thread, and while it changes, in every order.
#include "allocator/latest_finds.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/allocator/every_order.h"
#include "tests/property.h"

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

struct StreamFinds {
  LatestFinds<int, 16, testing::DelayingProcessors> finds;
  int before = 0;
  int after = 0;
  const int* found = nullptr;
};
std::unique_ptr<StreamFinds> new_finds() {
  auto finds = std::make_unique<StreamFinds>();
  finds->finds.put(1, &finds->before);
  return finds;
}
constexpr int kStops = 8;

TEST(LatestFindsInterleaving, AKeyThatComesNeverFindsWhatGoes) {
  const std::size_t orders = in_every_order(
      kStops, new_finds, [](StreamFinds& finds) { finds.finds.put(17, &finds.after); },
      [](StreamFinds& finds) { finds.found = finds.finds.find(17); },
      [](StreamFinds& finds, const std::string& order) {
        EXPECT_TRUE(finds.found == nullptr || finds.found == &finds.after) << order;
        EXPECT_EQ(finds.finds.find(17), &finds.after) << order;
      });
  EXPECT_GT(orders, 10U);
}

TEST(LatestFindsInterleaving, AKeyThatGoesFindsWhatItHadOrWhatComes) {
  const std::size_t orders = in_every_order(
      kStops, new_finds,
      [](StreamFinds& finds) {
        finds.finds.erase(1);
        finds.finds.put(17, &finds.after);
      },
      [](StreamFinds& finds) {
        finds.found = finds.finds.find(1);
        EXPECT_NE(finds.finds.find(17), &finds.before);
      },
      [](StreamFinds& finds, const std::string& order) {
        EXPECT_TRUE(finds.found == nullptr || finds.found == &finds.before || finds.found == &finds.after) << order;
        EXPECT_EQ(finds.finds.find(1), nullptr) << order;
      });
  EXPECT_GT(orders, 20U);
}

}  // namespace
}  // namespace cistern
