#pragma once

// Tests of a sample against a distribution. Seeds are fixed, so a result is always the same; the bounds
// are those that a good generator passes with a chance of about one in a million.

#include <functional>
#include <vector>

namespace cistern {

struct Moments {
  double mean = 0;
  double variance = 0;
  double skewness = 0;
  double kurtosis = 0;  // 3 for a normal distribution
};
[[nodiscard]] Moments moments_of(const std::vector<float>& sample);

// The largest distance between the sample's distribution function and `expected`, times the root of the
// sample's size (Kolmogorov and Smirnov): above 2.7 in one sample of a million.
[[nodiscard]] double kolmogorov_smirnov(std::vector<float> sample, const std::function<double(double)>& expected);
[[nodiscard]] double normal_distribution(double value);

// Pearson's correlation of each value with the one `distance` later, times the root of the sample's size.
[[nodiscard]] double serial_correlation(const std::vector<float>& sample, std::size_t distance);

}  // namespace cistern
