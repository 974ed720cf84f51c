// What is known of an owner's queue when another stream gets its bytes: where it is done with all that it had queued
// when it freed last, nothing is recorded and nothing is waited for.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/allocator/capturing_driver.h"
#include "tests/allocator/paged_fixture.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

class HandOverMarks : public Paged {
 protected:
  explicit HandOverMarks(std::size_t capacity = 1024 * kMega) : Paged(capacity) {}
  [[nodiscard]] std::vector<void*> fill(int blocks, StreamHandle stream) {
    std::vector<void*> all;
    for (int i = 0; i < blocks; ++i) all.push_back(take(4 * kMega, stream));
    return all;
  }
  [[nodiscard]] std::uint64_t events() const { return driver.calls("cuEventRecord"); }
  [[nodiscard]] std::uint64_t waits() const { return driver.calls("cuStreamWaitEvent"); }
  // Bytes of `owner` go to `taker`, when the owner has nothing to do.
  void come_to_rest(StreamHandle owner, StreamHandle taker) {
    driver.run_until_idle();
    give(take(4 * kMega, owner));
    give(take(4 * kMega, taker));
  }

  const StreamHandle one = driver.create_stream();
  const StreamHandle two = driver.create_stream();
  const StreamHandle three = driver.create_stream();
};

TEST_F(HandOverMarks, AStreamThatCameToARestIsAskedOnceForAllThatItFreed) {
  give_all(fill(20, one));
  for (int round = 0; round < 5; ++round) {
    const std::uint64_t before = events();
    give_all(fill(20, round % 2 == 0 ? two : one));
    EXPECT_EQ(events() - before, 1U) << "round " << round;
  }
  EXPECT_EQ(waits(), 0U);
  EXPECT_EQ(reserved(), mebibytes(80));
  judge();
}

TEST_F(HandOverMarks, WhatItFreesLaterIsWaitedFor) {
  give_all(fill(10, one));
  void* first = take(4 * kMega, two);
  EXPECT_EQ(waits(), 0U) << "it came to a rest";
  const auto work_on_nine = [&](StreamHandle stream) {
    const std::vector<void*> blocks = fill(9, stream);
    for (void* block : blocks) work(block, 4 * kMega, stream);
    give_all(blocks);
  };
  work_on_nine(one);  // its own bytes
  EXPECT_EQ(waits(), 0U);
  work_on_nine(two);
  EXPECT_GE(waits(), 1U);
  EXPECT_EQ(reserved(), mebibytes(40));
  driver.run_until_idle();
  judge();
  give(first);
}

// Nobody told of its end, and nothing can be recorded on it any more.
TEST_F(HandOverMarks, OfAStreamThatIsGoneItsBytesAreHadIfItWasAtRest) {
  const StreamHandle gone = driver.create_stream();
  give_all(fill(4, gone));
  void* first = take(4 * kMega, two);  // by which that is known
  driver.destroy_stream(gone);
  const std::vector<void*> others = fill(3, two);
  EXPECT_EQ(reserved(), mebibytes(16));
  give_all(others);
  give(first);
  judge();
}

// A captured stream cannot be waited for, and nobody told of its capture.
TEST(HandOverMarksInCaptures, OfACapturedStreamBytesAreHadIfItWasAtRest) {
  CapturingDriver captures({.capacity_bytes = 64 * kMega, .backing = Backing::none});
  CachingAllocator allocator(
      {.driver = &captures.api, .options = AllocatorOptions::parse("oom_dump:off,policy:paged")});
  const StreamHandle captured = captures.driver.create_stream();
  const StreamHandle other = captures.driver.create_stream();
  void* const first = allocator.allocate(8 * kMega, captured);
  for (void* block : {first, allocator.allocate(8 * kMega, captured)}) allocator.deallocate(block);
  void* const known = allocator.allocate(8 * kMega, other);
  captures.begin_capture(captured, 1);
  void* const rest = allocator.allocate(8 * kMega, other);
  EXPECT_EQ(allocator.memory_stats().reserved_bytes.all.current, std::int64_t{16 * kMega});
  captures.end_capture(captured);
  EXPECT_FALSE(captures.invalidated());
  for (void* block : {known, rest}) allocator.deallocate(block);
  allocator.check();
}

// Where no memory is left for more free bytes of any size serve.
class HandOverMarksAtTheLimit : public HandOverMarks {
 protected:
  HandOverMarksAtTheLimit() : HandOverMarks(6 * kMega) {}
};

// A block takes whole handles of others; what it leaves of them is its stream's, behind the same wait.
TEST_F(HandOverMarksAtTheLimit, WhatATakerDidNotNeedIsHadBehindItsWait) {
  come_to_rest(two, three);
  std::vector<void*> pages;
  for (int i = 0; i < 3; ++i) pages.push_back(take(2 * kMega, one));
  for (const int i : {0, 2}) work(pages[static_cast<std::size_t>(i)], 2 * kMega, one);
  for (const int i : {0, 2}) give(pages[static_cast<std::size_t>(i)]);
  const std::int64_t before = reserved();
  void* window = take(3 * kMega, two);
  EXPECT_EQ(waits(), 1U);
  void* rest = take(kMega, three);
  work(rest, kMega, three);
  EXPECT_EQ(reserved(), before);
  driver.run_until_idle();
  judge();
  give_all({window, rest, pages[1]});
}

// Its owner came to a rest, and worked on it then; another stream's work is what it waits for.
TEST_F(HandOverMarksAtTheLimit, AFreeThatWaitsIsClaimedBehindItsOwnersWorkToo) {
  const StreamHandle user = driver.create_stream();
  void* const first = take(2 * kMega, one);
  give_all({first, take(4 * kMega, one)});
  void* held = take(2 * kMega, two);
  EXPECT_EQ(waits(), 0U) << "it came to a rest";
  void* block = take(4 * kMega, one);
  allocator.record_stream(block, user);
  driver.occupy(user, std::chrono::milliseconds(1));
  work(block, 4 * kMega, one);
  give(block);
  void* claimed = take(4 * kMega, two);
  work(claimed, 4 * kMega, two);
  EXPECT_EQ(reserved(), mebibytes(6));
  driver.run_until_idle();
  judge();
  give_all({held, claimed});
}

// The same of a free that is claimed while another stream's work precedes it. The claimant came to a rest after that
// free and before its claim.
TEST_F(HandOverMarksAtTheLimit, WhatAClaimLeavesIsHadBehindItsWait) {
  const StreamHandle user = driver.create_stream();
  void* own = take(2 * kMega, two);
  void* block = take(4 * kMega, one);
  give(own);
  allocator.record_stream(block, user);
  work(block, 4 * kMega, user);
  give(block);
  void* held = take(2 * kMega, three);
  EXPECT_EQ(waits(), 0U) << "of the claimant's, at rest";
  void* most = take(3 * kMega, two);
  EXPECT_GE(waits(), 1U) << "it was claimed";
  void* rest = take(kMega, three);
  work(rest, kMega, three);
  EXPECT_EQ(reserved(), mebibytes(6));
  driver.run_until_idle();
  judge();
  give_all({held, most, rest});
}

}  // namespace
}  // namespace cistern
