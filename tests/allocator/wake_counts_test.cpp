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
  const WakeCounts counts;
  EXPECT_TRUE(counts.has_room(kMost - 1));
  EXPECT_FALSE(counts.has_room(kMost));
}

TEST(WakeCounts, ItIsLookedWhenTheFirstFindsNoRoom) {
  WakeCounts counts;
  std::array<std::uint64_t, 3> refused_at{};
  EXPECT_TRUE(counts.refuse(refused_at[0]));
  EXPECT_EQ(counts.look(kMost, 10), 10U);
  for (std::uint64_t& each : refused_at) EXPECT_FALSE(counts.refuse(each));
  ask(counts, kMost);
  EXPECT_EQ(counts.look(kMost, 10), 10U);
  EXPECT_FALSE(counts.refuse(refused_at[1])) << "some found none in the round before";
  for (int rounds = 0; rounds < 2; ++rounds) {
    ask(counts, kMost);
    EXPECT_EQ(counts.look(kMost, 10), 10U);
  }
  EXPECT_TRUE(counts.refuse(refused_at[1]));
}

// Streams that take turns of some requests, and find no room, while `awake` others are awake and busy.
class StreamsInTurn {
 public:
  // Until a round is over. Returns how many may stay.
  std::size_t turns(std::size_t awake, std::size_t others, int requests_each) {
    EXPECT_FALSE(counts_.has_room(awake));
    for (;; next_ = (next_ + 1) % others) {
      for (int i = 0; i < requests_each; ++i) {
        if (counts_.refuse(refused_at_[next_])) static_cast<void>(counts_.look(awake, awake));
        if (counts_.note_request(awake)) return counts_.look(awake, awake);
      }
    }
  }
  [[nodiscard]] WakeCounts& counts() { return counts_; }

 private:
  WakeCounts counts_;
  std::array<std::uint64_t, 1000> refused_at_{};
  std::size_t next_ = 0;
};

TEST(WakeCounts, OfMoreInTurnThanMayBeAwakeAFewAre) {
  for (const int requests_each : {1, 2, 8, 30}) {
    StreamsInTurn streams;
    EXPECT_EQ(streams.turns(kMost, 100, requests_each), WakeCounts::kFew) << requests_each;
    for (int rounds = 0; rounds < 3; ++rounds)
      EXPECT_EQ(streams.turns(WakeCounts::kFew, 100, requests_each), WakeCounts::kFew) << requests_each;
    EXPECT_EQ(streams.counts().look(WakeCounts::kFew, 2), 2U) << "some wake in their place";
    EXPECT_FALSE(streams.counts().has_room(WakeCounts::kFew)) << "and no more";
  }
}

TEST(WakeCounts, WhereFewerHaveTurnsAgainAllMayBeAwake) {
  StreamsInTurn streams;
  EXPECT_EQ(streams.turns(kMost, 100, 2), WakeCounts::kFew);
  EXPECT_EQ(streams.turns(WakeCounts::kFew, 20, 2), WakeCounts::kFew) << "who is awake stays so";
  EXPECT_TRUE(streams.counts().has_room(WakeCounts::kFew));
  EXPECT_TRUE(streams.counts().has_room(kMost - 1));
}

// Else streams that come and go would be taken for many in turn.
TEST(WakeCounts, OneThatWakesOrIsOverFindsNoRoomNoMore) {
  WakeCounts counts;
  const auto come_and_go = [&counts](std::size_t streams) {
    for (std::size_t i = 0; i < streams; ++i) {
      std::uint64_t refused_at = 0;
      EXPECT_EQ(counts.refuse(refused_at), i == 0);
      counts.forget(refused_at);
      counts.forget(refused_at);
    }
  };
  come_and_go(2 * kMost);
  std::uint64_t of_a_round_before = 0;
  EXPECT_FALSE(counts.refuse(of_a_round_before));
  ask(counts, kMost);
  EXPECT_EQ(counts.look(kMost, kMost - 1), kMost - 1);
  EXPECT_TRUE(counts.has_room(kMost - 1));
  std::uint64_t of_this_one = 0;
  EXPECT_FALSE(counts.refuse(of_this_one));
  counts.forget(of_a_round_before);
  ask(counts, kMost);
  EXPECT_EQ(counts.look(kMost, kMost), WakeCounts::kFew) << "one found none";
}

// While most of those that are awake do nothing.
TEST(WakeCounts, AStreamThatFindsNoRoomIsCountedOnce) {
  WakeCounts counts;
  std::uint64_t refused_at = 0;
  EXPECT_TRUE(counts.refuse(refused_at));
  do {
    EXPECT_FALSE(counts.refuse(refused_at));
  } while (!counts.note_request(kMost));
  EXPECT_EQ(counts.look(kMost, kMost / 2), kMost / 2);
  EXPECT_TRUE(counts.has_room(kMost - 1));
}

}  // namespace
}  // namespace cistern
