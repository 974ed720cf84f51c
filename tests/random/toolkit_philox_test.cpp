// What the CUDA Toolkit's own header gives, built for the host: curand_philox4x32_x.h.

#include <curand_globals.h>
#include <gtest/gtest.h>
#include <vector_types.h>

#define QUALIFIERS static inline
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <curand_philox4x32_x.h>
#pragma GCC diagnostic pop

#include <cstdint>
#include <random>
#include <vector>

#include "runtime/random_values.h"

namespace cistern {
namespace {

// A thread's state in cuRAND's kernel, as curand_init makes it: the subsequence goes in high.
curandStatePhilox4_32_10 initialized(std::uint64_t seed, std::uint64_t subsequence, std::uint64_t block) {
  curandStatePhilox4_32_10 state = {};
  state.key.x = static_cast<unsigned>(seed);
  state.key.y = static_cast<unsigned>(seed >> 32);
  Philox_State_Incr_hi(&state, subsequence);
  Philox_State_Incr(&state, block);
  return state;
}

std::uint32_t toolkit_word(std::uint64_t seed, std::uint64_t position) {
  const curandStatePhilox4_32_10 state = initialized(seed, position / 4 % 65536, position / 4 / 65536);
  const uint4 words = curand_Philox4x32_10(state.ctr, state.key);
  const unsigned in_turn[4] = {words.x, words.y, words.z, words.w};
  return in_turn[position % 4];
}

// _curand_uniform of curand_uniform.h.
float toolkit_uniform(std::uint64_t seed, std::uint64_t position) {
  return static_cast<float>(toolkit_word(seed, position)) * CURAND_2POW32_INV + (CURAND_2POW32_INV / 2.0F);
}

struct Stretch {
  std::uint64_t seed;
  std::uint64_t position;
  std::size_t count;
};
// More than a round of all subsequences, and places and lengths that cut blocks anywhere.
std::vector<Stretch> stretches() {
  std::vector<Stretch> all = {{67280421310721, 0, 1'000'000}, {~std::uint64_t{0}, ~std::uint64_t{0} - 1000, 1001}};
  std::mt19937_64 random(20261121);
  for (int i = 0; i < 200; ++i) all.push_back({random(), random() >> (random() % 64), 1 + random() % 5000});
  return all;
}

TEST(ToolkitPhilox, GivesTheSameUniformValuesBitForBit) {
  std::size_t draws = 0;
  for (const Stretch& stretch : stretches()) {
    std::vector<float> values(stretch.count);
    const RandomFill fill{
        .kind = RandomKind::uniform, .count = stretch.count, .seed = stretch.seed, .position = stretch.position};
    write_random_values(fill, 0, values.size(), values.data());
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], toolkit_uniform(stretch.seed, stretch.position + i))
          << stretch.seed << " " << stretch.position << " + " << i;
    draws += values.size();
  }
  EXPECT_GE(draws, 1'000'000U);
}

TEST(ToolkitPhilox, GivesTheSameWords) {
  for (const Stretch& stretch : stretches()) {
    std::vector<std::uint32_t> values(stretch.count);
    const RandomFill fill{.count = stretch.count, .seed = stretch.seed, .position = stretch.position};
    write_random_values(fill, 0, values.size(), values.data());
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], toolkit_word(stretch.seed, stretch.position + i)) << stretch.position << " + " << i;
  }
}

}  // namespace
}  // namespace cistern
