// Streams that take turns go on without the heap's lock: near the peaks, and if they are many.
#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "allocator/shared_counts.h"
#include "runtime/stream_access.h"
#include "tests/allocator/without_the_heaps_lock.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

class WithoutTheHeapsLockInPagesTest : public WithoutTheHeapsLockTest {
 protected:
  WithoutTheHeapsLockInPagesTest() : WithoutTheHeapsLockTest("oom_dump:off,policy:paged") {}
};

class WithoutTheHeapsLockInFewPagesTest : public WithoutTheHeapsLockTest {
 protected:
  WithoutTheHeapsLockInFewPagesTest()
      : WithoutTheHeapsLockTest("oom_dump:off,policy:paged,per_process_memory_fraction:0.00830078125") {}  // 34 MiB
};

// Nor with the turn at what all streams share there.
TEST_F(WithoutTheHeapsLockInPagesTest, PairsOfSeveralStreamsComeAndGo) {
  const StreamHandle stream = driver_.create_stream();
  const auto pairs = [&](int count) {
    for (int i = 0; i < count; ++i) allocator_.deallocate(allocator_.allocate(kKibi, stream));
  };
  EXPECT_TRUE(goes_on([&] { pairs(5000); }, [&] { pairs(5); }));
}

// Of free bytes of the stream's own, that no log knows.
TEST_F(WithoutTheHeapsLockInPagesTest, SizesThatNeverCameBeforeAreServed) {
  const StreamHandle stream = driver_.create_stream();
  std::mt19937_64 random(20261126);
  std::vector<void*> live(16, nullptr);
  const auto before = [&] {
    make_room(stream, 64);
    replace(live, random, stream, 500);
  };
  EXPECT_TRUE(goes_on(before, [&] { replace(live, random, stream, 100); }));
  for (void* const block : live) allocator_.deallocate(block);
}

// What a stream had of a handle in which another has a block it finds in that one's pages.
TEST_F(WithoutTheHeapsLockInFewPagesTest, BlocksInAnotherStreamsPagesAreServed) {
  const StreamHandle host = driver_.create_stream();
  const StreamHandle guest = driver_.create_stream();
  std::vector<void*> hosts;
  const auto turns = [&] {
    for (int i = 0; i < 20; ++i) {
      std::vector<void*> blocks;
      for (const std::size_t bytes : {3 * kKibi, 2 * kKibi, kKibi}) blocks.push_back(allocator_.allocate(bytes, guest));
      for (void* const block : blocks) {
        EXPECT_TRUE(block >= hosts.front() && block <= hosts.back());
        allocator_.deallocate(block);
      }
    }
  };
  const auto before = [&] {
    for (int i = 0; i < 32; ++i) hosts.push_back(allocator_.allocate(kMega, host));
    for (int i = 0; i < 32; i += 2) allocator_.deallocate(hosts[static_cast<std::size_t>(i)]);
    allocator_.deallocate(allocator_.allocate(kMega, guest));
    turns();
  };
  EXPECT_TRUE(goes_on(before, turns));
}

TEST_F(WithoutTheHeapsLockTest, ManyStreamsTakeTurns) {
  std::vector<StreamHandle> forty = streams(39);
  forty.push_back(own_);
  const auto before = [&] {
    // Far below the peaks: of each stream every other one goes first, as many as there are.
    std::vector<void*> blocks;
    for (const StreamHandle stream : forty)
      for (int times = 0; times < 40; ++times) blocks.push_back(allocator_.allocate(2 * kKibi, stream));
    for (std::size_t begin : {std::size_t{0}, std::size_t{1}})
      for (std::size_t i = begin; i < blocks.size(); i += 2) allocator_.deallocate(blocks[i]);
    turns(forty, 100);
  };
  EXPECT_TRUE(goes_on(before, [&] {
    forty.pop_back();
    turns(forty, 2);
  }));
}

TEST_F(WithoutTheHeapsLockTest, StreamsTakeTurnsUpToThePeak) {
  const std::vector<StreamHandle> two = streams(2);
  EXPECT_TRUE(goes_on([&] { turns(two, 100); }, [&] { turns(two, 20); }));
}

// There is room for ten times as many blocks, and the peak of inactive splits is that of a turn, which comes up to it
// with its first free.
TEST_F(WithoutTheHeapsLockTest, StreamsTakeTurnsUpToThePeakOfTheirFrees) {
  const std::vector<StreamHandle> four = streams(4);
  const auto before = [&] {
    std::vector<void*> blocks;
    for (const StreamHandle stream : four)
      for (int i = 0; i < 10; ++i) blocks.push_back(allocator_.allocate(4 * kKibi, stream));
    for (void* const block : blocks) allocator_.deallocate(block);
    turns(four, 100);
  };
  EXPECT_TRUE(goes_on(before, [&] { turns(four, 20); }));
}

// One of a thread of its own, which takes turns with two that share: it asks and asks, and has nobody to share with.
// Were they parted, they would not have come together again by then.
TEST_F(WithoutTheHeapsLockTest, OneAloneEndsNobodysSharing) {
  const std::vector<StreamHandle> two = streams(2);
  const StreamHandle one = streams(1).front();
  const auto before = [&] {
    turns(two, 100);
    for (int i = 0; i < 16; ++i) {
      std::thread([&] { turn(one); }).join();
      turns(two, 1);
    }
    allocator_.release_stream(one);  // and its part of the room with it
    turns(two, 1);
  };
  EXPECT_TRUE(goes_on(before, [&] { turns(two, 5); }));
}

TEST_F(WithoutTheHeapsLockTest, StreamsThatPartedShareAgain) {
  const std::vector<StreamHandle> two = streams(2);
  constexpr int kTurns = static_cast<int>(SharedCounts::kFirstStay * 3 / 2 / 4);
  EXPECT_TRUE(goes_on([&] { turns(two, kTurns); }, [&] { turns(two, 20); }));
}

// A thread takes over a part of another's.
TEST_F(WithoutTheHeapsLockTest, StreamsOfAThreadThatEndedTakeTurnsOnAnother) {
  const std::vector<StreamHandle> four = streams(4);
  const std::vector<StreamHandle> two(four.begin(), four.begin() + 2);
  const auto before = [&] {
    turn(two[0]);  // with a mark of its own
    std::thread([&] { turns(four, 100); }).join();
    turns(two, 200);
  };
  EXPECT_TRUE(goes_on(before, [&] { turns(two, 20); }));
}

// Others share, of a thread that does nothing any more.
TEST_F(WithoutTheHeapsLockTest, StreamsOfAnIdleThreadGiveWay) {
  const std::vector<StreamHandle> first = streams(2);
  const std::vector<StreamHandle> second = streams(2);
  const auto before = [&] {
    turn(second[0]);
    std::thread([&] { turns(first, 100); }).join();
    turns(second, 200);
  };
  EXPECT_TRUE(goes_on(before, [&] { turns(second, 20); }));
}

}  // namespace
}  // namespace cistern
