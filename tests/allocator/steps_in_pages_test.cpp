// Steps of several streams in paged memory: followed beside each other, with the turn at what they share left alone.

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "allocator/device_allocator.h"
#include "tests/allocator/heap_of_streams.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

class HeapOfSteps : public DeviceAllocator {
 public:
  using DeviceAllocator::DeviceAllocator;
  [[nodiscard]] bool follows(const StreamIdentity& stream) {
    StreamHeap* const heap = stream_heaps_.find(stream);
    return heap != nullptr && heap->recurrence.is_followed();
  }
};

class StepsInPagesTest : public HeapOfStreams<HeapOfSteps> {
 protected:
  StepsInPagesTest() : HeapOfStreams("oom_dump:off,policy:paged", HistoryOptions::always_on()) {}
  ~StepsInPagesTest() override { EXPECT_NO_THROW(heap_.check()); }

  // Some blocks come and go in another order. Returns where they were.
  std::vector<std::uint64_t> step(const StreamIdentity& stream) {
    std::vector<std::uint64_t> blocks;
    for (const std::size_t bytes : {kMega, 3 * kMega, kMega / 2, 5 * kMega, kMega / 4})
      blocks.push_back(take(bytes, stream));
    for (const std::size_t which : {1U, 4U, 0U, 3U, 2U}) give(blocks[which]);
    return blocks;
  }
  // More than any step has: who follows steps needs room below the peaks.
  void raise_peaks() {
    std::vector<std::uint64_t> blocks;
    for (const StreamIdentity* stream : {&first_, &second_})
      for (int i = 0; i < 20; ++i) blocks.push_back(take(2 * kMega, *stream));
    for (const std::uint64_t block : blocks) give(block);
  }

  const StreamIdentity first_ = make_stream();
  const StreamIdentity second_ = make_stream();
};

TEST_F(StepsInPagesTest, TwoStreamsAreFollowedAtOnce) {
  raise_peaks();
  for (int i = 0; i < 400; ++i) step(first_);
  EXPECT_TRUE(heap_.follows(first_)) << "alone";
  for (int i = 0; i < 400; ++i) {
    step(first_);
    step(second_);
  }
  EXPECT_TRUE(heap_.follows(first_));
  EXPECT_TRUE(heap_.follows(second_));
}

// A block in it goes and comes back at once: its free stands, and both are steps of the round.
TEST_F(StepsInPagesTest, ARoundWithAPairInItIsFollowedAllTheTime) {
  raise_peaks();
  int followed = 0;
  const auto round = [&] {
    const auto count = [&](std::uint64_t block) {
      followed += heap_.follows(first_) ? 1 : 0;
      return block;
    };
    const std::uint64_t outer = count(take(kMega, first_));
    give(count(take(3 * kMega, first_)));
    const std::uint64_t back = count(take(3 * kMega, first_));
    const std::uint64_t inner = count(take(kMega / 2, first_));
    for (const std::uint64_t block : {outer, inner, back}) give(count(block));
  };
  for (int i = 0; i < 400; ++i) round();
  followed = 0;
  for (int i = 0; i < 50; ++i) round();
  EXPECT_EQ(followed, 50 * 7);
}

// Its own blocks alone make a state: what others have and had meanwhile changes none of its places.
TEST_F(StepsInPagesTest, WhatWasFollowedIsCarriedOutWhateverOthersDid) {
  raise_peaks();
  std::vector<std::uint64_t> places;
  for (int i = 0; i < 400; ++i) {
    places = step(first_);
    for (const std::size_t bytes : {2 * kMega, kMega, 7 * kMega}) pair(bytes, second_);
  }
  ASSERT_TRUE(heap_.follows(first_));
  const std::uint64_t kept = take(kMega, first_);
  for (const std::size_t bytes : {7 * kMega, 2 * kMega, kMega}) pair(bytes, second_);
  const std::uint64_t others = take(2 * kMega, second_);
  ASSERT_TRUE(heap_.follows(first_));
  EXPECT_EQ(kept, places.front());
  const std::uint64_t unforeseen = take(11 * kMega, first_);  // carried out here
  EXPECT_NE(unforeseen, others);
  EXPECT_NO_THROW(heap_.check());
  for (const std::uint64_t block : {kept, others, unforeseen}) give(block);
  EXPECT_EQ(step(first_), places);
}

// Its places may not be in the log any more, for what others ask for has taken their room.
TEST_F(StepsInPagesTest, WhatWasFollowedIsCarriedOutAlthoughTheLogForgotIt) {
  raise_peaks();
  std::mt19937_64 random(20261126);
  std::vector<std::uint64_t> live(16);
  const auto replace = [&](int count) {
    for (; count > 0; --count) {
      std::uint64_t& block = live[random() % live.size()];
      if (block != 0) give(block);
      block = take(1 + random() % (kMega / 2), second_);
    }
  };
  replace(200'000);  // until the log keeps few entries
  std::vector<std::uint64_t> places;
  std::uint64_t kept = 0;
  // Now and then one of these takes the heap's lock, which carries out what was followed.
  for (int times = 0; times < 20 && (kept == 0 || !heap_.follows(first_)); ++times) {
    if (kept != 0) give(kept);
    for (int i = 0; i < 400; ++i) places = step(first_);
    ASSERT_TRUE(heap_.follows(first_));
    kept = take(kMega, first_);
    replace(1500);
  }
  ASSERT_TRUE(heap_.follows(first_));
  const std::uint64_t unforeseen = take(11 * kMega, first_);  // carried out here
  EXPECT_EQ(kept, places.front());
  EXPECT_NO_THROW(heap_.check());
  for (const std::uint64_t block : live)
    if (block != 0) give(block);
  give(kept);
  give(unforeseen);
}

// Bytes that another stream took are no place of one's own any more.
TEST_F(StepsInPagesTest, AStreamWhoseBytesWereTakenGetsOthers) {
  for (int i = 0; i < 400; ++i) step(first_);
  const std::uint64_t reserved = static_cast<std::uint64_t>(heap_.stats().reserved_bytes.all.current);
  const std::uint64_t taken = take(reserved, second_);  // all that is there, handed over
  EXPECT_EQ(static_cast<std::uint64_t>(heap_.stats().reserved_bytes.all.current), reserved);
  const std::vector<std::uint64_t> places = step(first_);
  for (const std::uint64_t place : places) EXPECT_TRUE(place < taken || place >= taken + reserved);
  give(taken);
}

}  // namespace
}  // namespace cistern
