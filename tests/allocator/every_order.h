#pragma once

// Two threads on a world of their own, in every order of their steps.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdio>
#include <utility>

#include "tests/allocator/delaying_processors.h"
#include "tests/races/choices.h"

namespace cistern::testing {

// make() returns what points to a new world; first(world) and second(world) run on it, one step at a time, and
// check(world, choices) sees what is left, and which order it was. Stops at the first that fails. Fails where there are
// few: the steps of the two are not apart then. Returns the number of orders, and prints it.
template <class Make, class First, class Second, class Check>
std::size_t in_every_order(int most_stops, const Make& make, const First& first, const Second& second,
                           const Check& check) {
  TwoProcessors machine;
  Choices choices;
  std::size_t orders = 0;
  do {
    auto world = make();
    machine.run(
        choices, most_stops, [&] { first(*world); }, [&] { second(*world); });
    check(*world, choices);
    ++orders;
  } while (!::testing::Test::HasFailure() && choices.advance());
  std::printf("%zu orders\n", orders);
  constexpr std::size_t kFew = 10;
  EXPECT_TRUE(orders > kFew || ::testing::Test::HasFailure()) << orders;
  return orders;
}

// A step that is no other's: what comes before and after it may be apart.
inline void let_pass() {
  if (TwoProcessors* const machine = TwoProcessors::current) machine->step();
}

// As often as the lock takes to lean towards whoever does it, whatever happened before; not one of the steps that are
// looked at.
template <class Mutex>
void make_it_lean(Mutex& mutex) {
  TwoProcessors* const machine = std::exchange(TwoProcessors::current, nullptr);
  for (int i = 0; i < 200; ++i) {
    mutex.lock();
    mutex.unlock();
  }
  TwoProcessors::current = machine;
  if (machine != nullptr) machine->learn_all();  // what whoever had it released
}

}  // namespace cistern::testing
