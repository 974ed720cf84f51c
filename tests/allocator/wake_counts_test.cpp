#include "allocator/wake_counts.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace cistern {
namespace {

constexpr std::size_t kMost = AwakeStreams::kMost;

// As many requests as make a look, while so many are awake.
void ask(WakeCounts& counts, std::size_t awake) {
  for (std::size_t i = 0; i < WakeCounts::kRequestsEach * awake; ++i) EXPECT_FALSE(counts.note_request(awake)) << i;
  EXPECT_TRUE(counts.note_request(awake));
}

// How many wake before it is looked.
std::size_t wakes_until_look(WakeCounts& counts) {
  std::size_t wakes = 1;
  while (!counts.note_wake()) ++wakes;
  return wakes;
}

TEST(WakeCounts, ItIsLookedWhenTwiceAsManyWokeAsStayed) {
  WakeCounts counts;
  EXPECT_EQ(wakes_until_look(counts), WakeCounts::kFew);
  EXPECT_EQ(counts.look(8, 6), 6U);
  EXPECT_EQ(wakes_until_look(counts), 12U);
  EXPECT_EQ(counts.look(20, 20), 20U);
  EXPECT_EQ(wakes_until_look(counts), 40U);
  EXPECT_EQ(counts.look(40, 1), 1U);
  EXPECT_EQ(wakes_until_look(counts), WakeCounts::kFew);
}

TEST(WakeCounts, ItIsLookedAfterSoManyRequestsForEachThatIsAwake) {
  WakeCounts counts;
  for (const std::size_t awake : {std::size_t{1}, std::size_t{10}, kMost}) {
    ask(counts, awake);
    EXPECT_EQ(counts.look(awake, 1), 1U);
  }
}

TEST(WakeCounts, RequestsAreCountedOnWhereWakesMadeItLook) {
  WakeCounts counts;
  for (std::size_t i = 0; i < WakeCounts::kRequestsEach; ++i) EXPECT_FALSE(counts.note_request(1));
  EXPECT_EQ(counts.look(1, 1), 1U);
  EXPECT_TRUE(counts.note_request(1));
}

TEST(WakeCounts, NoMoreThanThereAreBitsForAreAwake) {
  WakeCounts counts;
  std::uint64_t refused_at = 0;
  EXPECT_TRUE(counts.may_wake(kMost - 1, refused_at));
  EXPECT_FALSE(counts.may_wake(kMost, refused_at));
}

class StreamsInTurn {
 public:
  // Streams that ask while so many are awake and busy, until it is looked. Returns how many may stay.
  std::size_t turns(std::size_t awake, std::size_t others) {
    for (bool looks = false; !looks; next_ = (next_ + 1) % others) {
      EXPECT_FALSE(counts_.may_wake(awake, refused_at_[next_]));
      looks = counts_.note_request(awake);
    }
    return counts_.look(awake, awake);
  }
  WakeCounts& counts() { return counts_; }

 private:
  WakeCounts counts_;
  std::array<std::uint64_t, 1000> refused_at_{};
  std::size_t next_ = 0;
};

TEST(WakeCounts, OfMoreInTurnThanMayBeAwakeAFewAre) {
  StreamsInTurn streams;
  EXPECT_EQ(streams.turns(kMost, 100), WakeCounts::kFew);
  EXPECT_EQ(streams.turns(WakeCounts::kFew, 100), WakeCounts::kFew);
  EXPECT_EQ(streams.counts().look(WakeCounts::kFew, 2), 2U) << "some wake in their place";
  std::uint64_t another = 0;
  EXPECT_FALSE(streams.counts().may_wake(WakeCounts::kFew, another)) << "and no more";
}

TEST(WakeCounts, WhereFewerHaveTurnsAgainAllMayBeAwake) {
  StreamsInTurn streams;
  EXPECT_EQ(streams.turns(kMost, 100), WakeCounts::kFew);
  EXPECT_EQ(streams.turns(WakeCounts::kFew, 20), WakeCounts::kFew) << "who is awake stays so";
  std::uint64_t another = 0;
  EXPECT_TRUE(streams.counts().may_wake(WakeCounts::kFew, another));
  EXPECT_TRUE(streams.counts().may_wake(kMost - 1, another));
}

// While most of those that are awake do nothing.
TEST(WakeCounts, AStreamThatCannotWakeIsCountedOnce) {
  WakeCounts counts;
  std::uint64_t refused_at = 0;
  do {
    EXPECT_FALSE(counts.may_wake(kMost, refused_at));
  } while (!counts.note_request(kMost));
  EXPECT_EQ(counts.look(kMost, kMost / 2), kMost / 2);
  EXPECT_TRUE(counts.may_wake(kMost - 1, refused_at));
}

}  // namespace
}  // namespace cistern
