// The way of blocks to the thread that allocated them: every order of two threads' steps, to a bound.
#include "allocator/returned_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/allocator/every_order.h"
#include "tests/property.h"
#include "tests/races/choices.h"

namespace cistern {
namespace {

using testing::DelayingProcessors;
using testing::in_every_order;
using testing::TwoProcessors;
// One of whose returning threads stops where it has a place, and has not filled it.
struct ManyThreads : DelayingProcessors {
  [[nodiscard]] static Thread this_thread() noexcept { return identity != 0 ? identity : TwoProcessors::self + 1; }
  static inline thread_local Thread identity = 0;  // a third thread's, whose steps one of the two takes
};
class Returned : public BasicReturnedBlocks<ManyThreads> {
 public:
  void stop_in_a_place() {
    std::uint64_t place = 0;
    begin_as_a_third();
    EXPECT_TRUE(take_place(place));
  }
  void begin_as_a_third() {
    const Thread before = std::exchange(ManyThreads::identity, 3);
    tell_if_several_return();
    ManyThreads::identity = before;
  }
  using BasicReturnedBlocks<ManyThreads>::tell_if_several_return;
};

void take_all(Returned& returned, std::vector<std::uint64_t>& taken) {
  for (std::uint64_t address = returned.first(); address != 0; address = returned.drop_first()) {
    taken.push_back(address);
    ASSERT_LE(taken.size(), 2 * Returned::kPlaces) << "more than ever was put";
  }
}

struct ReturningWorld {
  Returned returned;
  std::vector<std::uint64_t> taken;
  DelayingProcessors::Atomic<bool> is_awake{true};
  bool found_asleep = false;
  bool is_found = true;
  int refused = 0;
};
std::unique_ptr<ReturningWorld> new_returning_world() { return std::make_unique<ReturningWorld>(); }
std::unique_ptr<ReturningWorld> world_where_one_has_stopped() {
  auto world = new_returning_world();
  world->returned.stop_in_a_place();
  return world;
}
std::unique_ptr<ReturningWorld> world_with_a_full_ring() {
  auto world = new_returning_world();
  for (std::uint64_t i = 1; i <= Returned::kPlaces; ++i) EXPECT_TRUE(world->returned.put(i));
  return world;
}

TEST(ReturnedBlocks, HoldsSoManyInTheirOrder) {
  ReturnedBlocks returned;
  EXPECT_EQ(returned.first(), 0U);
  for (int lap = 0; lap < 3; ++lap) {
    for (std::uint64_t i = 1; i <= ReturnedBlocks::kPlaces; ++i) EXPECT_TRUE(returned.put(i * 512));
    EXPECT_FALSE(returned.put(512)) << "there is no room";
    for (std::uint64_t i = 1; i <= ReturnedBlocks::kPlaces; ++i) {
      EXPECT_EQ(returned.first(), i * 512);
      returned.drop_first();
    }
    EXPECT_EQ(returned.first(), 0U);
  }
}

TEST(ReturnedBlocksInterleaving, TwoThatReturnAtOnceLoseNothing) {
  in_every_order(
      4, new_returning_world,
      [](ReturningWorld& world) {
        EXPECT_TRUE(world.returned.put(1));
        EXPECT_TRUE(world.returned.put(2));
      },
      [](ReturningWorld& world) {
        EXPECT_TRUE(world.returned.put(3));
        EXPECT_TRUE(world.returned.put(4));
      },
      [](ReturningWorld& world, const Choices& order) {
        take_all(world.returned, world.taken);
        std::sort(world.taken.begin(), world.taken.end());
        EXPECT_EQ(world.taken, (std::vector<std::uint64_t>{1, 2, 3, 4})) << order;
      });
}

TEST(ReturnedBlocksInterleaving, OneReturnsInAFullRingWhileItIsEmptied) {
  in_every_order(
      kSanitized ? 2 : 4,
      [] {
        auto world = new_returning_world();
        for (std::uint64_t i = 1; i <= Returned::kPlaces - 1; ++i) EXPECT_TRUE(world->returned.put(i));
        return world;
      },
      [](ReturningWorld& world) {
        for (std::uint64_t i = Returned::kPlaces; i < Returned::kPlaces + 3; ++i)
          if (!world.returned.put(i)) ++world.refused;
      },
      [](ReturningWorld& world) {
        for (int i = 0; i < 2; ++i) {
          world.taken.push_back(world.returned.first());
          world.returned.drop_first();
        }
      },
      [](ReturningWorld& world, const Choices& order) {
        take_all(world.returned, world.taken);
        EXPECT_EQ(world.taken.size() + static_cast<std::size_t>(world.refused), Returned::kPlaces + 2) << order;
        EXPECT_TRUE(std::is_sorted(world.taken.begin(), world.taken.end())) << order;
        EXPECT_EQ(std::adjacent_find(world.taken.begin(), world.taken.end()), world.taken.end()) << order;
      });
}

// Who returned one and has the lock finds it, wherever the other stopped.
TEST(ReturnedBlocksInterleaving, OneThatStopsInTheMiddleHoldsUpNobody) {
  in_every_order(
      kSanitized ? 1 : 2, new_returning_world,
      [](ReturningWorld& world) {
        for (const std::uint64_t address : {1, 2}) EXPECT_TRUE(world.returned.put(address));
      },
      [](ReturningWorld& world) {
        for (const std::uint64_t address : {3, 4}) {
          EXPECT_TRUE(world.returned.put(address));
          if (address == 3 || !world.returned.is_surely_empty()) take_all(world.returned, world.taken);
          world.is_found &= std::count(world.taken.begin(), world.taken.end(), address) == 1;
        }
      },
      [](ReturningWorld& world, const Choices& order) {
        EXPECT_TRUE(world.is_found) << order;
        take_all(world.returned, world.taken);
        std::sort(world.taken.begin(), world.taken.end());
        EXPECT_EQ(world.taken, (std::vector<std::uint64_t>{1, 2, 3, 4})) << order;
        for (std::uint64_t i = 1; i <= Returned::kPlaces; ++i) EXPECT_TRUE(world.returned.put(i)) << order;
        EXPECT_FALSE(world.returned.put(1)) << order;
      });
}

// Who takes them sees what was done to them before.
TEST(ReturnedBlocksInterleaving, WhatWasReturnedIsWholeForWhoTakesIt) {
  struct World : ReturningWorld {
    std::array<DelayingProcessors::Atomic<int>, 3> uses{};
    int not_whole = 0;
  };
  in_every_order(
      kSanitized ? 2 : 4, [] { return std::make_unique<World>(); },
      [](World& world) {
        for (const std::uint64_t address : {1, 2}) {
          world.uses[address].store(1, std::memory_order_relaxed);
          EXPECT_TRUE(world.returned.put(address));
        }
      },
      [](World& world) {
        for (std::uint64_t address = world.returned.first(); address != 0; address = world.returned.drop_first())
          world.not_whole += world.uses[address].load(std::memory_order_relaxed) != 1;
      },
      [](World& world, const Choices& order) { EXPECT_EQ(world.not_whole, 0) << order; });
}

// Who empties returns one itself, so that what it saw of the empty places is there for the other.
TEST(ReturnedBlocksInterleaving, AnEmptyPlaceThatAnotherSawIsEmpty) {
  in_every_order(
      kSanitized ? 1 : 2, world_with_a_full_ring,
      [](ReturningWorld& world) {
        for (int i = 0; i < 2; ++i) {
          world.taken.push_back(world.returned.first());
          world.returned.drop_first();
        }
        if (!world.returned.put(Returned::kPlaces + 1)) ++world.refused;
      },
      [](ReturningWorld& world) {
        if (!world.returned.put(Returned::kPlaces + 2)) ++world.refused;
      },
      [](ReturningWorld& world, const Choices& order) {
        take_all(world.returned, world.taken);
        EXPECT_EQ(world.taken.size() + static_cast<std::size_t>(world.refused), Returned::kPlaces + 2) << order;
      });
}

// A third thread has a place before theirs, and has not filled it.
TEST(ReturnedBlocksInterleaving, WhoReturnedOneFindsItBehindOneThatStopped) {
  in_every_order(
      kSanitized ? 2 : 4, world_where_one_has_stopped,
      [](ReturningWorld& world) { EXPECT_TRUE(world.returned.put(1)); },
      [](ReturningWorld& world) {
        EXPECT_TRUE(world.returned.put(2));
        if (!world.returned.is_surely_empty()) take_all(world.returned, world.taken);
        world.is_found = std::count(world.taken.begin(), world.taken.end(), 2) == 1;
      },
      [](ReturningWorld& world, const Choices& order) { EXPECT_TRUE(world.is_found) << order; });
}

// Both come when none did, and a third: who is told by that several return, has what that thread told before.
TEST(ReturnedBlocksInterleaving, WhoIsNotTheFirstToReturnFindsItBehindOneThatStopped) {
  in_every_order(
      kSanitized ? 2 : 4, new_returning_world,
      [](ReturningWorld& world) {
        EXPECT_TRUE(world.returned.put(1));
        if (!world.returned.is_surely_empty()) take_all(world.returned, world.taken);
        world.is_found = std::count(world.taken.begin(), world.taken.end(), 1) == 1;
      },
      [](ReturningWorld& world) {
        world.returned.stop_in_a_place();
        world.returned.tell_if_several_return();
      },
      [](ReturningWorld& world, const Choices& order) { EXPECT_TRUE(world.is_found) << order; });
}

template <class Make>
void expect_one_of_both_sees_it(const Make& make) {
  in_every_order(
      4, make,
      [](ReturningWorld& world) {
        world.found_asleep = world.returned.put(512, world.is_awake) == Returned::Put::to_who_sleeps;
        static_cast<void>(world.is_awake.load(std::memory_order_relaxed));  // it may be stopped here, too
      },
      [](ReturningWorld& world) {
        Returned::put_to_sleep(world.is_awake);
        take_all(world.returned, world.taken);
      },
      [](ReturningWorld& world, const Choices& order) {
        EXPECT_TRUE(world.found_asleep || !world.taken.empty()) << order;
      });
}

TEST(ReturnedBlocksInterleaving, WhatComesWhileAStreamFallsAsleepIsSeenByOneOfBoth) {
  expect_one_of_both_sees_it(new_returning_world);
}

TEST(ReturnedBlocksInterleaving, WhatComesBehindOneThatStoppedWhileAStreamFallsAsleepIsSeenByOneOfBoth) {
  expect_one_of_both_sees_it(world_where_one_has_stopped);
}

TEST(ReturnedBlocks, ThreadsOfThisMachineLoseNothing) {
  ReturnedBlocks returned;
  constexpr std::uint64_t kEach = kSanitized ? 5'000 : 50'000;
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 2; ++thread)
    threads.emplace_back([&, thread] {
      for (std::uint64_t i = 1; i <= kEach; ++i)
        while (!returned.put(i * 2 + thread)) std::this_thread::yield();
    });
  std::uint64_t last[2] = {0, 0};
  for (std::uint64_t taken = 0; taken < 2 * kEach;) {
    const std::uint64_t address = returned.first();
    if (address == 0) {
      std::this_thread::yield();
      continue;
    }
    returned.drop_first();
    ASSERT_EQ(address / 2, last[address % 2] + 1) << "each thread's own come in their order";
    last[address % 2] = address / 2;
    ++taken;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(returned.first(), 0U);
}

}  // namespace
}  // namespace cistern
