#include "allocator/bit_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <random>
#include <set>

namespace cistern {
namespace {

using Bits = BitTree<4>;

TEST(BitTreeTest, NothingIsFoundWhereNothingIs) {
  Bits bits;
  EXPECT_TRUE(bits.empty());
  EXPECT_EQ(bits.next(0), Bits::kNone);
  EXPECT_EQ(bits.previous(0), Bits::kNone);
  EXPECT_EQ(bits.previous(Bits::kNone), Bits::kNone);
  bits.provide(1);
  EXPECT_TRUE(bits.empty());
  EXPECT_EQ(bits.next(0), Bits::kNone);
  EXPECT_EQ(bits.next(1000), Bits::kNone);
  EXPECT_EQ(bits.previous(1000), Bits::kNone);
  bits.set(0);
  EXPECT_FALSE(bits.empty());
  EXPECT_EQ(bits.next(0), 0U);
  EXPECT_EQ(bits.next(1), Bits::kNone);
  EXPECT_EQ(bits.previous(1000), 0U);
}

// Where words begin and end, on each level.
TEST(BitTreeTest, NumbersAtTheEdgesOfWords) {
  const std::set<std::size_t> all{0, 63, 64, 4095, 4096, 262'143, 262'144, 1'000'000};
  Bits bits;
  bits.provide(1'000'001);
  for (const std::size_t number : all) bits.set(number);
  for (const std::size_t gone : all) {
    for (const std::size_t number : all) {
      EXPECT_EQ(bits.next(number), number);
      EXPECT_EQ(bits.previous(number), number);
      const auto behind = all.upper_bound(number);
      EXPECT_EQ(bits.next(number + 1), behind == all.end() ? Bits::kNone : *behind);
      const auto at = all.find(number);
      if (number != 0) {
        EXPECT_EQ(bits.previous(number - 1), *std::prev(at));
      }
    }
    bits.clear(gone);
    EXPECT_EQ(bits.next(gone), all.upper_bound(gone) == all.end() ? Bits::kNone : *all.upper_bound(gone));
    bits.set(gone);
  }
}

// A word that others have numbers in stays known above.
TEST(BitTreeTest, WhatIsLeftInAWordIsFound) {
  Bits bits;
  bits.provide(10'000);
  bits.set(5000);
  bits.set(5001);
  bits.clear(5001);
  EXPECT_EQ(bits.next(0), 5000U);
  EXPECT_EQ(bits.previous(9999), 5000U);
  bits.clear(5000);
  EXPECT_TRUE(bits.empty());
  EXPECT_EQ(bits.next(0), Bits::kNone);
}

TEST(BitTreeTest, ProgramsAgreeWithASetWhileItGrows) {
  std::mt19937_64 random(20261127);
  Bits bits;
  std::set<std::size_t> expected;
  std::size_t room = 0;
  for (int round = 0; round < 60'000; ++round) {
    if (round % 3000 == 0) {
      // Numbers that were set before it grew are found still.
      room = std::min<std::size_t>(room * 2 + 1 + random() % 100, 3'000'000);
      bits.provide(room);
    }
    const std::size_t number = random() % room;
    if (random() % (round % 6000 < 3000 ? 4 : 2) != 0) {
      bits.set(number);
      expected.insert(number);
    } else if (const auto gone = expected.lower_bound(number); gone != expected.end()) {
      bits.clear(*gone);
      expected.erase(gone);
    }
    const std::size_t from = random() % (room + 70);
    const auto next = expected.lower_bound(from);
    ASSERT_EQ(bits.next(from), next == expected.end() ? Bits::kNone : *next) << "round " << round;
    const auto behind = expected.upper_bound(from);
    ASSERT_EQ(bits.previous(from), behind == expected.begin() ? Bits::kNone : *std::prev(behind)) << "round " << round;
    ASSERT_EQ(bits.empty(), expected.empty());
  }
}

}  // namespace
}  // namespace cistern
