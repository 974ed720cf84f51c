// In which pieces places came from other streams.

#include "allocator/hand_overs.h"

#include <gtest/gtest.h>

#include <vector>

namespace cistern {
namespace {

HandOvers::Record record(KnownPlaces::Number place, StreamNumber first, StreamNumber second) {
  return {place, {{0, 8, first}, {8, 8, second}}};
}

TEST(HandOversTest, EqualRecordsAreOne) {
  HandOvers hand_overs;
  const HandOvers::Number first = hand_overs.note(record(3, 0, 1));
  const HandOvers::Number other = hand_overs.note(record(3, 1, 0));
  EXPECT_NE(first, other) << "the pieces were others'";
  EXPECT_NE(hand_overs.note(record(4, 0, 1)), first) << "it is another place";
  EXPECT_EQ(hand_overs.note(record(3, 0, 1)), first);
  EXPECT_EQ(hand_overs.note(record(3, 1, 0)), other);
  EXPECT_EQ(hand_overs.size(), 3U);
  ASSERT_NE(hand_overs.find(other), nullptr);
  EXPECT_EQ(*hand_overs.find(other), record(3, 1, 0));
}

// The log has either.
TEST(HandOversTest, ANumberIsThatOfAPlaceOrOfARecord) {
  HandOvers hand_overs;
  const HandOvers::Number number = hand_overs.note(record(0, 0, 1));
  EXPECT_NE(hand_overs.find(number), nullptr);
  EXPECT_EQ(hand_overs.find(0), nullptr);
  EXPECT_EQ(hand_overs.find(number + 1), nullptr);
  EXPECT_EQ(hand_overs.find(HandOvers::kNone), nullptr);
  hand_overs.forget();
  EXPECT_EQ(hand_overs.find(number), nullptr);
  EXPECT_EQ(hand_overs.size(), 0U);
  EXPECT_EQ(hand_overs.note(record(0, 1, 0)), number) << "the first again";
}

TEST(HandOversTest, NoMoreAreNotedThanThereMayBe) {
  HandOvers hand_overs;
  KnownPlaces::Number place = 0;
  while (hand_overs.note(record(place, 0, 1)) != HandOvers::kNone) ASSERT_LT(++place, 1U << 20);
  EXPECT_EQ(hand_overs.size(), place);
  EXPECT_NE(hand_overs.note(record(place - 1, 0, 1)), HandOvers::kNone) << "what is known is found";
  EXPECT_EQ(hand_overs.note(record(place + 1, 0, 1)), HandOvers::kNone);
}

}  // namespace
}  // namespace cistern
