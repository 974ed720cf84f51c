// Turns of blocks that another stream uses, as one device's heap has them: at doors of their own, and within rounds.

#include <cistern/history.h>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "allocator/device_allocator.h"
#include "tests/allocator/heap_of_streams.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

class UsedTurns : public HeapOfStreams<DeviceAllocator> {
 protected:
  UsedTurns() : HeapOfStreams("policy:classic", {.enabled = HistoryEnabled::none}) {}
  std::uint64_t take_and_use(std::size_t bytes) {
    const std::uint64_t address = take(bytes, owner_);
    StreamUse use;
    use.stream = user_;
    StreamHeap* const of_page = heap_.find_by_page(address);
    EXPECT_TRUE((of_page != nullptr && heap_.use_again(*of_page, address, user_, 0, false)) ||
                heap_.record_use(address, use));
    return address;
  }

  const StreamIdentity owner_ = make_stream();
  const StreamIdentity user_ = make_stream();
};

class TurnsAtTheDoor : public UsedTurns {
 protected:
  std::uint64_t turn(std::size_t bytes) {
    const std::uint64_t address = take_and_use(bytes);
    give(address);
    return address;
  }
};

// No other block serves it.
TEST_F(TurnsAtTheDoor, ARequestAtHandGetsNothingElseThanWhatComesBack) {
  for (int i = 0; i < 200; ++i) turn(30 * kMega);
  driver_.occupy(user_.handle, std::chrono::milliseconds(10));
  const std::uint64_t block = turn(30 * kMega);
  EXPECT_EQ(heap_.allocate_at_hand(30 * kMega, owner_), nullptr);
  EXPECT_EQ(driver_.calls("cuMemAlloc"), 1U);
  driver_.run_until_idle();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(heap_.allocate_at_hand(30 * kMega, owner_)), block);
}

// Nothing but the stream's lock orders the step before and the look: ThreadSanitizer sees whether the door took it.
TEST_F(TurnsAtTheDoor, WhoLooksBehindAUseSeesIt) {
  std::atomic<bool> is_used{false};
  std::atomic<bool> is_seen{false};
  std::thread looker([&] {
    while (!is_used.load(std::memory_order_relaxed)) std::this_thread::yield();
    static_cast<void>(heap_.stream_stats());
    is_seen.store(true, std::memory_order_relaxed);
  });
  for (int i = 0; i < 200; ++i) turn(kKibi);
  const std::uint64_t address = take(kKibi, owner_);
  EXPECT_TRUE(heap_.use_again(*heap_.find_by_page(address), address, user_, 0, false));
  is_used.store(true, std::memory_order_relaxed);
  while (!is_seen.load(std::memory_order_relaxed)) std::this_thread::yield();
  give(address);
  looker.join();
}

// Turns go on while the other looks: a door that took no lock would be seen within by ThreadSanitizer.
TEST_F(TurnsAtTheDoor, WhoLooksWhileTheyGoOnWaits) {
  constexpr int kLooks = 5;  // each has the lock lean to the turns' thread half as soon
  std::atomic<int> wanted{0};
  std::atomic<int> looked{0};
  std::thread looker([&] {
    for (int i = 1; i <= kLooks; ++i) {
      while (wanted.load(std::memory_order_relaxed) < i) std::this_thread::yield();
      static_cast<void>(heap_.stream_stats());
      looked.store(i, std::memory_order_relaxed);
    }
  });
  for (int i = 1; i <= kLooks; ++i) {
    for (int warm = 0; warm < 100 << i; ++warm) turn(kKibi);
    wanted.store(i, std::memory_order_relaxed);
    while (looked.load(std::memory_order_relaxed) < i) turn(kKibi);
  }
  looker.join();
}

// Turns within a round that comes again.
class TurnsWithinARound : public UsedTurns {
 protected:
  // Whether all of its turns were followed.
  bool round() {
    bool are_followed = true;
    for (int i = 0; i < 5; ++i) {
      const std::uint64_t address = take_and_use(kKibi);
      are_followed = are_followed && heap_.find_by_page(address)->recurrence.is_followed();
      give(address);
    }
    const std::uint64_t first = take(2 * kKibi, owner_);
    const std::uint64_t second = take_and_use(3 * kKibi);
    give(first);
    give(second);
    return are_followed;
  }
};

TEST_F(TurnsWithinARound, AreLearnedEachAndFollowed) {
  for (int i = 0; i < 2000; ++i) round();
  int followed = 0;
  for (int i = 0; i < 100; ++i) followed += round() ? 1 : 0;
  EXPECT_EQ(followed, 100);
}

}  // namespace
}  // namespace cistern
