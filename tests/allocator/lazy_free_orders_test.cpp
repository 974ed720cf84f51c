// What a thread reads of a free that stands before it has the lock: every order of two threads' steps, to a bound.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>

#include "allocator/biased_mutex.h"
#include "allocator/lazy_free.h"
#include "tests/allocator/every_order.h"
#include "tests/property.h"
#include "tests/races/choices.h"

namespace cistern {
namespace {

using testing::DelayingProcessors;
using testing::in_every_order;
using testing::make_it_lean;
using DelayedLazyFree = BasicLazyFree<DelayingProcessors>;

constexpr std::uint64_t kOwnAddress = 512;
constexpr std::size_t kOwnRequested = 100;

// A stream whose lock leans towards the first thread, and the block that this was handed out last.
struct AtTheDoor {
  AtTheDoor() {
    block.address = kOwnAddress;
    block.requested = kOwnRequested;
    another.address = 2 * kOwnAddress;
    another.requested = kOwnRequested + 1;
    make_it_lean(mutex);
    lazy.begin(&block, {}, true);
  }
  // As PairHits::let_stand and take_back.
  void free_at_the_door() {
    if (!lazy.goes(kOwnAddress) || !mutex.try_enter()) return;
    if (lazy.block() == &block && lazy.state() == DelayedLazyFree::State::in_use)
      static_cast<void>(lazy.go_plainly());
    else
      ++stale;
    mutex.leave();
  }
  void take_back_at_the_door() {
    if (!lazy.comes_for(kOwnRequested) || !mutex.try_enter()) return;
    if (lazy.block() == &block && lazy.state() == DelayedLazyFree::State::free)
      static_cast<void>(lazy.come_back_plainly());
    else
      ++stale;
    mutex.leave();
  }
  void come_and_go() {
    free_at_the_door();
    take_back_at_the_door();
    if (!other_is_done) return;
    // The lock may lean again by the time that the thread asks next.
    make_it_lean(mutex);
    take_back_at_the_door();
    free_at_the_door();
  }
  template <class What>
  void do_with_the_lock(const What& what) {
    mutex.lock();
    what();
    mutex.unlock();
    other_is_done = true;
  }

  BasicBiasedMutex<DelayingProcessors> mutex;
  DelayedLazyFree lazy;
  Block block;
  Block another;
  int stale = 0;  // times that a word was believed which did not hold any more
  bool other_is_done = false;
};
std::unique_ptr<AtTheDoor> at_the_door() { return std::make_unique<AtTheDoor>(); }

template <class What>
void expect_no_stale_word_is_believed(const What& what, int most_stops = kSanitized ? 1 : 2) {
  const std::size_t orders = in_every_order(
      most_stops, at_the_door, [](AtTheDoor& stream) { stream.come_and_go(); },
      [&](AtTheDoor& stream) { stream.do_with_the_lock([&] { what(stream.lazy, stream.another); }); },
      [](AtTheDoor& stream, const Choices& order) { EXPECT_EQ(stream.stale, 0) << order; });
  EXPECT_GT(orders, 50U);
}

// As who takes the heap's lock ends what stands.
TEST(LazyFreeInterleaving, WhatAnotherEndedDoesNotStandAtTheDoor) {
  expect_no_stale_word_is_believed([](DelayedLazyFree& lazy, Block&) { lazy.end(); });
}

TEST(LazyFreeInterleaving, WhatAnotherDroppedDoesNotGoAtTheDoor) {
  expect_no_stale_word_is_believed([](DelayedLazyFree& lazy, Block&) {
    if (!lazy.is_freed()) lazy.drop();
  });
}

TEST(LazyFreeInterleaving, WhatIsUsedElsewhereDoesNotGoAtTheDoor) {
  expect_no_stale_word_is_believed([](DelayedLazyFree& lazy, Block&) {
    if (lazy.state() == DelayedLazyFree::State::in_use) lazy.share();
  });
}

TEST(LazyFreeInterleaving, WhatWasHandedOutElsewhereIsNotTakenForWhatWasBefore) {
  expect_no_stale_word_is_believed(
      [](DelayedLazyFree& lazy, Block& another) {
        lazy.end();
        lazy.begin(&another, {}, true);
      },
      kSanitized || scaled(10) < 10 ? 1 : 2);
}

}  // namespace
}  // namespace cistern
