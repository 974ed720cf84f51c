// The values that the host makes of a sequence.

#include "runtime/random_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/random/distribution.h"

namespace cistern {
namespace {

constexpr std::uint64_t kValuesSeed = 20261121;
constexpr std::size_t kMany = 1'000'000;

std::vector<float> values(RandomFill fill, std::size_t count) {
  fill.count = count;
  std::vector<float> all(count);
  write_random_values(fill, 0, count, all.data());
  return all;
}

TEST(RandomValues, OfAPartAreThoseOfTheWhole) {
  std::mt19937 random(7);
  for (const RandomKind kind : {RandomKind::words, RandomKind::uniform, RandomKind::normal}) {
    const RandomFill fill{.kind = kind, .count = 1000, .seed = kValuesSeed, .position = 10};
    std::vector<std::uint32_t> whole(fill.count);
    write_random_values(fill, 0, fill.count, whole.data());
    for (int i = 0; i < 200; ++i) {
      const std::size_t first = random() % fill.count;
      const std::size_t count = random() % (fill.count - first) + 1;
      std::vector<std::uint32_t> part(count + 1, 0xdeadbeef);
      write_random_values(fill, first, count, part.data());
      ASSERT_TRUE(std::equal(part.begin(), part.end() - 1, whole.begin() + static_cast<std::ptrdiff_t>(first)));
      ASSERT_EQ(part.back(), 0xdeadbeef);
    }
  }
}

TEST(RandomValues, UniformOnesAreUniformAndAboveZero) {
  const std::vector<float> sample = values({.kind = RandomKind::uniform, .seed = kValuesSeed}, kMany);
  EXPECT_GT(*std::min_element(sample.begin(), sample.end()), 0.0F);
  EXPECT_LE(*std::max_element(sample.begin(), sample.end()), 1.0F);
  EXPECT_LT(kolmogorov_smirnov(sample, [](double value) { return value; }), 2.7);
  const Moments moments = moments_of(sample);
  EXPECT_NEAR(moments.mean, 0.5, 5 * std::sqrt(1.0 / 12 / kMany));
  EXPECT_NEAR(moments.variance, 1.0 / 12, 5 * std::sqrt(1.0 / 180 / kMany));
  for (std::size_t distance = 1; distance <= 8; ++distance)
    EXPECT_LT(std::abs(serial_correlation(sample, distance)), 5) << distance;
}

TEST(RandomValues, NormalOnesAreNormal) {
  const std::vector<float> sample = values({.kind = RandomKind::normal, .seed = kValuesSeed}, kMany);
  EXPECT_LT(kolmogorov_smirnov(sample, normal_distribution), 2.7);
  const Moments moments = moments_of(sample);
  EXPECT_NEAR(moments.mean, 0, 5 * std::sqrt(1.0 / kMany));
  EXPECT_NEAR(moments.variance, 1, 5 * std::sqrt(2.0 / kMany));
  EXPECT_NEAR(moments.skewness, 0, 5 * std::sqrt(6.0 / kMany));
  EXPECT_NEAR(moments.kurtosis, 3, 5 * std::sqrt(24.0 / kMany));
  // The two of a pair are independent, and so are their sizes.
  EXPECT_LT(std::abs(serial_correlation(sample, 1)), 5);
  std::vector<float> squares;
  for (const float value : sample) squares.push_back(value * value);
  EXPECT_LT(std::abs(serial_correlation(squares, 1)), 5);
  // The tails are there: beyond four deviations are 63 of a million.
  const auto far = std::count_if(sample.begin(), sample.end(), [](float value) { return std::abs(value) > 4; });
  EXPECT_NEAR(static_cast<double>(far), 63, 40);
}

TEST(RandomValues, NormalOnesHaveTheMeanAndTheDeviationThatAreAskedFor) {
  const std::vector<float> plain = values({.kind = RandomKind::normal, .seed = kValuesSeed}, 100);
  const std::vector<float> moved =
      values({.kind = RandomKind::normal, .seed = kValuesSeed, .mean = 10, .standard_deviation = 3}, 100);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_FLOAT_EQ(moved[i], 10 + 3 * plain[i]);
  for (const float value :
       values({.kind = RandomKind::normal, .seed = kValuesSeed, .mean = 2, .standard_deviation = 0}, 100))
    EXPECT_EQ(value, 2);
}

TEST(RandomValues, OfNeighbouringSeedsAreUnrelated) {
  std::vector<float> mixed;
  const std::vector<float> first = values({.kind = RandomKind::uniform, .seed = kValuesSeed}, kMany / 2);
  const std::vector<float> second = values({.kind = RandomKind::uniform, .seed = kValuesSeed + 1}, kMany / 2);
  for (std::size_t i = 0; i < first.size(); ++i) mixed.insert(mixed.end(), {first[i], second[i]});
  EXPECT_LT(kolmogorov_smirnov(mixed, [](double value) { return value; }), 2.7);
  EXPECT_LT(std::abs(serial_correlation(mixed, 1)), 5);
}

}  // namespace
}  // namespace cistern
