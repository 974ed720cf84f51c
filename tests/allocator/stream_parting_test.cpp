// When streams that share paged memory part, and when they come together again.
#include "allocator/stream_parting.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace cistern {
namespace {

class StreamPartingTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kPages = 1024;
  static constexpr std::int64_t kLittle = 32;

  // A round in which so many requests had bytes of others.
  void round(std::int64_t had_others, std::int64_t pages = kPages, std::int64_t peaks = kPages) {
    for (std::int64_t i = 1; i < StreamParting::kRequests; ++i) ASSERT_FALSE(parting_.note(i <= had_others));
    ASSERT_TRUE(parting_.note(false));
    parting_.end_round(pages, peaks, kLittle);
  }
  // How many restless rounds there are until they part.
  [[nodiscard]] int rounds_until_apart() {
    int rounds = 0;
    for (; !parting_.are_apart() && rounds < 10'000; ++rounds) round(StreamParting::kMany);
    return rounds;
  }

  StreamParting parting_;
};

TEST_F(StreamPartingTest, TheyPartWhereOthersBytesSaveNothing) {
  round(StreamParting::kMany);
  EXPECT_FALSE(parting_.are_apart()) << "all that there is came in the first round";
  round(StreamParting::kMany - 1);
  EXPECT_FALSE(parting_.are_apart()) << "few have others' bytes";
  round(StreamParting::kMany, kPages + kPages / 256 + 1);
  EXPECT_FALSE(parting_.are_apart()) << "memory grows";
  round(StreamParting::kMany, kPages, kPages + kPages / 32 + 1);
  EXPECT_FALSE(parting_.are_apart()) << "alone they would need more";
  round(StreamParting::kMany, kPages + kPages / 256, kPages + kPages / 32);
  EXPECT_TRUE(parting_.are_apart());
}

TEST_F(StreamPartingTest, TheyMayHaveAnEighthMoreThanWasEverLive) {
  EXPECT_EQ(rounds_until_apart(), 2);
  EXPECT_EQ(parting_.most_pages(800, kLittle), kPages) << "as much as there was";
  EXPECT_EQ(parting_.most_pages(1000, kLittle), 1125);
  round(0, 4 * kPages, 5 * kPages);
  EXPECT_TRUE(parting_.are_apart()) << "whatever they need then";
  EXPECT_EQ(parting_.most_pages(800, kLittle), kPages);
}

// However much it is to them.
TEST_F(StreamPartingTest, TheyPartWhereOthersBytesSaveLittle) {
  round(StreamParting::kMany, 1);
  round(StreamParting::kMany, 1, kLittle + 2);
  EXPECT_FALSE(parting_.are_apart()) << "alone they would need more than a little more";
  round(StreamParting::kMany - 1, 1, kLittle + 1);
  EXPECT_FALSE(parting_.are_apart()) << "few have others' bytes";
  round(StreamParting::kMany, 1, kLittle + 1);
  EXPECT_TRUE(parting_.are_apart());
  EXPECT_EQ(parting_.most_pages(1, kLittle), kLittle + 1) << "each may have its own";
  EXPECT_EQ(parting_.most_pages(16 * kLittle, kLittle), 18 * kLittle);
}

TEST_F(StreamPartingTest, TheyComeTogetherWhereManyHaveOthersBytesAllTheSame) {
  EXPECT_EQ(rounds_until_apart(), 2);
  for (const int rounds : {2, 4, 8, 16}) {
    round(StreamParting::kManyApart - 1);
    EXPECT_TRUE(parting_.are_apart());
    round(StreamParting::kManyApart);
    EXPECT_FALSE(parting_.are_apart());
    EXPECT_EQ(rounds_until_apart(), rounds) << "twice as late each time";
  }
}

// Up to a bound.
TEST_F(StreamPartingTest, TheyPartInTheEndHoweverOftenTheyCameTogether) {
  int latest = rounds_until_apart();
  for (int times = 0; times < 12; ++times) {
    round(StreamParting::kManyApart);
    latest = rounds_until_apart();
  }
  EXPECT_EQ(latest, 1024);
}

TEST_F(StreamPartingTest, SharingAnewBeginsAnew) {
  EXPECT_EQ(rounds_until_apart(), 2);
  round(StreamParting::kManyApart);
  round(StreamParting::kMany);
  EXPECT_FALSE(parting_.are_apart());
  parting_.come_together();
  EXPECT_EQ(rounds_until_apart(), 2) << "memory comes in the first round";
  parting_.come_together();
  EXPECT_FALSE(parting_.are_apart());
}

}  // namespace
}  // namespace cistern
