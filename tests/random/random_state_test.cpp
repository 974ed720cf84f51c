// The states of the devices' sequences.

#include <cistern/error.h>
#include <cistern/random.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "runtime/random_states.h"
#include "tests/runtime/process_device.h"

namespace cistern {
namespace {

// The process's states last as long as it: each case begins by setting what it speaks of.
class RngStates : public ProcessDevice {
 protected:
  static RngState state(std::uint8_t seed, std::uint8_t offset) {
    RngState bytes(kRngStateBytes);
    bytes[0] = seed;
    bytes[8] = offset;
    return bytes;
  }
};

TEST(RandomStates, TakesWholePairsAndGivesThemBack) {
  RandomStates states;
  states.set(0, {.seed = 1, .offset = 3});
  const RandomStates::Taken taken = states.take(0, 5, 2);
  EXPECT_EQ(taken.first.offset, 4U);
  EXPECT_EQ(states.get(0).offset, 10U);
  states.give_back(0, taken);
  EXPECT_EQ(states.get(0), (RandomState{1, 3}));
}

TEST(RandomStates, WhatOthersTookMeanwhileStays) {
  RandomStates states;
  const RandomStates::Taken failed = states.take(0, 5, 1);
  static_cast<void>(states.take(0, 7, 1));
  states.give_back(0, failed);
  EXPECT_EQ(states.get(0).offset, 12U);
}

TEST(RandomStates, ASeedOfAllIsThatOfDevicesThatNobodyHasNamed) {
  RandomStates states;
  states.set(1, {.seed = 7});
  states.set_all({.seed = 9});
  EXPECT_EQ(states.get(1).seed, 9U);
  EXPECT_EQ(states.get(63).seed, 9U);
  states.set(2, {.seed = 7, .offset = 1});
  EXPECT_EQ(states.get(63), (RandomState{9, 0}));
}

TEST_F(RngStates, AreTheSeedAndTheOffsetTheLowestByteFirst) {
  manual_seed(0x0807060504030201);
  EXPECT_EQ(get_rng_state(), (RngState{1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}));
  set_rng_state({0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0, 0, 0, 0, 0, 0, 1});
  EXPECT_EQ(initial_seed(), 0x8000000000000000U);
  EXPECT_EQ(get_rng_state(), (RngState{0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0, 0, 0, 0, 0, 0, 1}));
}

TEST_F(RngStates, OfAnotherLengthAreRefused) {
  set_rng_state(state(1, 2));
  EXPECT_THROW(set_rng_state(RngState(15)), InvalidArgument);
  EXPECT_THROW(set_rng_state(RngState(17)), InvalidArgument);
  EXPECT_THROW(set_rng_state({}), InvalidArgument);
  EXPECT_EQ(get_rng_state(), state(1, 2));
}

TEST_F(RngStates, OfAllDevicesAreSetTogetherOrNot) {
  set_rng_state_all({state(1, 2), state(3, 4)});
  EXPECT_EQ(get_rng_state_all(), (std::vector<RngState>{state(1, 2), state(3, 4)}));
  EXPECT_EQ(get_rng_state(1), state(3, 4));
  EXPECT_THROW(set_rng_state_all({state(5, 6), RngState(3)}), InvalidArgument);
  EXPECT_THROW(set_rng_state_all({state(5, 6)}), InvalidArgument);
  EXPECT_THROW(set_rng_state_all({state(5, 6), state(5, 6), state(5, 6)}), InvalidArgument);
  EXPECT_EQ(get_rng_state_all(), (std::vector<RngState>{state(1, 2), state(3, 4)}));
}

TEST_F(RngStates, OfADeviceThatIsNotThereAreAnError) {
  EXPECT_THROW(static_cast<void>(get_rng_state(kDevices)), InvalidArgument);
  EXPECT_THROW(set_rng_state(state(1, 2), kDevices), InvalidArgument);
}

TEST_F(RngStates, AManualSeedIsOfTheCurrentDeviceAlone) {
  manual_seed_all(5);
  set_device(1);
  manual_seed(6);
  EXPECT_EQ(initial_seed(), 6U);
  set_device(0);
  EXPECT_EQ(initial_seed(), 5U);
}

TEST_F(RngStates, RandomSeedsDifferAndBeginAnew) {
  std::set<std::uint64_t> seeds;
  for (int i = 0; i < 20; ++i) {
    set_rng_state(state(1, 9));
    seed();
    seeds.insert(initial_seed());
    const RngState now = get_rng_state();
    EXPECT_TRUE(std::all_of(now.begin() + 8, now.end(), [](std::uint8_t byte) { return byte == 0; }));
  }
  EXPECT_EQ(seeds.size(), 20U);
  seed_all();
  EXPECT_EQ(get_rng_state(0), get_rng_state(1));
  EXPECT_FALSE(seeds.contains(initial_seed()));
}

}  // namespace
}  // namespace cistern
