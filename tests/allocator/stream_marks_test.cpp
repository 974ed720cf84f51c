// Which event of a stream some bytes are to be had behind, and which streams have come to stand alone.

#include "allocator/stream_marks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "allocator/hand_over_tally.h"
#include "allocator/stream_heap.h"

namespace cistern {
namespace {

class StreamMarksTest : public ::testing::Test {
 protected:
  // An event as good as any: nobody asks the driver for it.
  void keep(StreamMarks::Number number) { marks_.keep(number, std::shared_ptr<StreamEnd>()); }
  [[nodiscard]] StreamMarks::Number behind(StreamMarks::Number number) const {
    const StreamMarks::Mark* mark = marks_.behind(number);
    return mark == nullptr ? 0 : mark->number;
  }

  StreamMarks marks_;
};

TEST_F(StreamMarksTest, TheFirstEventBehindTheLastUseIsFound) {
  EXPECT_EQ(behind(1), 0U);
  keep(3);
  keep(7);
  EXPECT_EQ(behind(1), 3U);
  EXPECT_EQ(behind(3), 3U);
  EXPECT_EQ(behind(4), 7U);
  EXPECT_EQ(behind(8), 0U);
}

TEST_F(StreamMarksTest, WhatIsDoneTakesWhatCameBeforeWithIt) {
  for (StreamMarks::Number number = 1; number <= 5; ++number) keep(number);
  EXPECT_FALSE(marks_.is_done(1));
  marks_.done(3);
  EXPECT_TRUE(marks_.is_done(3));
  EXPECT_FALSE(marks_.is_done(4));
  EXPECT_EQ(behind(1), 4U);
  marks_.done(2);
  EXPECT_TRUE(marks_.is_done(3));
  keep(2);
  EXPECT_EQ(behind(1), 4U);
  marks_.done(9);
  EXPECT_EQ(behind(1), 0U);
}

TEST_F(StreamMarksTest, OfManyTheNewestMakesWay) {
  for (StreamMarks::Number number = 1; number <= 20; ++number) keep(number);
  EXPECT_EQ(behind(1), 1U);
  EXPECT_EQ(behind(7), 7U);
  EXPECT_EQ(behind(8), 20U);
}

TEST_F(StreamMarksTest, AMarkThatWasOvertakenIsNotKept) {
  keep(6);
  keep(5);
  EXPECT_EQ(behind(5), 6U);
}

class HandOverTallyTest : public ::testing::Test {
 protected:
  HandOverTallyTest() {
    const std::vector<StreamNumber> others{1, 2};
    tally_.provide(0, others);
  }
  // So many rounds of a block that is held up, some that are not, and their frees.
  void rounds(int count, int others) {
    for (int i = 0; i < count; ++i) {
      tally_.held_up(0, came_, came_);
      came_ += 1 + others;
    }
  }

  HandOverTally tally_;
  std::int64_t came_ = 0;
};

TEST_F(HandOverTallyTest, StalledAtEveryOtherBlockSixteenTimesItStandsAlone) {
  rounds(15, 1);
  EXPECT_FALSE(tally_.stands_alone(0));
  rounds(1, 1);
  EXPECT_TRUE(tally_.stands_alone(0));
  EXPECT_FALSE(tally_.stands_alone(1));
  tally_.share_anew();
  EXPECT_FALSE(tally_.stands_alone(0));
}

TEST_F(HandOverTallyTest, StalledAtEveryThirdBlockItDoesNot) {
  rounds(200, 2);
  EXPECT_FALSE(tally_.stands_alone(0));
}

TEST_F(HandOverTallyTest, WhatIsHeldUpWithoutAFreeInBetweenIsOneStall) {
  for (int i = 0; i < 31; ++i) tally_.held_up(0, i, 5);
  EXPECT_FALSE(tally_.stands_alone(0));
}

TEST_F(HandOverTallyTest, PairsAreOfNobodyWhoIsGone) {
  tally_.note(0, 1, 100, true);
  tally_.note(0, 1, 10, false);
  tally_.note(0, 2, 1, false);
  using Figures = std::tuple<StreamNumber, std::int64_t, std::int64_t, std::int64_t>;
  const auto figures = [this] {
    std::vector<Figures> all;
    tally_.for_each([&](StreamNumber to, StreamNumber from, const HandOverTally::Pair& pair) {
      EXPECT_EQ(to, 0);
      all.emplace_back(from, pair.hand_overs, pair.bytes, pair.held_up);
    });
    std::sort(all.begin(), all.end());
    return all;
  };
  EXPECT_EQ(figures(), (std::vector<Figures>{{1, 2, 110, 1}, {2, 1, 1, 0}}));
  tally_.forget(1);
  EXPECT_EQ(figures(), (std::vector<Figures>{{2, 1, 1, 0}}));
  tally_.note(0, 1, 100, true);
  EXPECT_EQ(figures(), (std::vector<Figures>{{2, 1, 1, 0}})) << "nobody provided for it";
  tally_.reset();
  EXPECT_TRUE(figures().empty());
  tally_.provide(0, std::vector<StreamNumber>{2});
  tally_.note(0, 2, 1, false);
  tally_.forget(0);
  EXPECT_TRUE(figures().empty());
}

}  // namespace
}  // namespace cistern
