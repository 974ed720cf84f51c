// What a thread reads of a use that stays with the block that stands before it has the lock: every order of two
// threads' steps, to a bound.

#include "allocator/standing_use.h"

#include "allocator/biased_mutex.h"
#include "tests/allocator/every_order.h"
#include "tests/property.h"
#include "tests/races/choices.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>

namespace cistern {
namespace {

using testing::DelayingProcessors;
using testing::in_every_order;
using testing::make_it_lean;
using DelayedStandingUse = BasicStandingUse<DelayingProcessors>;

// A stream whose lock leans towards the first thread, and whose block that stands another stream uses.
struct UseAtTheDoor {
  enum class State { none, used, awaited };

  UseAtTheDoor() {
    make_it_lean(mutex);
    begin();
  }
  void begin() {
    standing.begin();
    is = State::used;
  }
  void await() {
    standing.free(recording, 1, 1);
    standing.await(nullptr);
    is = State::awaited;
  }
  void end() {
    standing.end();
    is = State::none;
  }

  // As StreamHits::free_again, and take_again, behind which the block is used once more.
  void free_at_the_door() {
    if (!standing.is_used() || !mutex.try_enter()) return;
    if (is == State::used)
      await();
    else
      ++stale;
    mutex.leave();
  }
  void take_and_use_at_the_door() {
    if (!standing.has_event() || !mutex.try_enter()) return;
    if (is == State::awaited) {
      end();
      begin();
    } else {
      ++stale;
    }
    mutex.leave();
  }
  void turn() {
    free_at_the_door();
    take_and_use_at_the_door();
    if (!other_is_done) return;
    // The lock may lean again by the time that the thread asks next.
    make_it_lean(mutex);
    take_and_use_at_the_door();
    free_at_the_door();
  }
  template <class What>
  void do_with_the_lock(const What& what) {
    mutex.lock();
    what(*this);
    mutex.unlock();
    other_is_done = true;
  }

  BasicBiasedMutex<DelayingProcessors> mutex;
  DelayedStandingUse standing;
  AwaitedFrees::Recording recording;
  State is = State::none;  // what its words say, as it is
  int stale = 0;           // times that a word was believed which did not hold any more
  bool other_is_done = false;
};

template <class What>
void expect_no_stale_use_is_believed(const What& what) {
  const std::size_t orders = in_every_order(
      kSanitized ? 1 : 2, [] { return std::make_unique<UseAtTheDoor>(); }, [](UseAtTheDoor& stream) { stream.turn(); },
      [&](UseAtTheDoor& stream) { stream.do_with_the_lock(what); },
      [](UseAtTheDoor& stream, const Choices& order) { EXPECT_EQ(stream.stale, 0) << order; });
  EXPECT_GT(orders, 50U);
}

// As who takes the heap's lock has all of it written down.
TEST(StandingUseInterleaving, WhatAnotherToldOfIsNotBelievedAtTheDoor) {
  expect_no_stale_use_is_believed([](UseAtTheDoor& stream) { stream.end(); });
}

TEST(StandingUseInterleaving, AUseThatAnotherEndedAndAnotherThatBeganAreNotTakenForOne) {
  expect_no_stale_use_is_believed([](UseAtTheDoor& stream) {
    const bool waited = stream.is == UseAtTheDoor::State::awaited;
    stream.end();
    if (waited) stream.begin();
  });
}

}  // namespace
}  // namespace cistern
