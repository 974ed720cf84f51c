#include "tests/random/distribution.h"

#include <algorithm>
#include <cmath>

namespace cistern {

Moments moments_of(const std::vector<float>& sample) {
  const auto size = static_cast<double>(sample.size());
  Moments moments;
  for (const float value : sample) moments.mean += value / size;
  double third = 0;
  double fourth = 0;
  for (const float value : sample) {
    const double square = (value - moments.mean) * (value - moments.mean);
    moments.variance += square / size;
    third += square * (value - moments.mean) / size;
    fourth += square * square / size;
  }
  moments.skewness = third / std::pow(moments.variance, 1.5);
  moments.kurtosis = fourth / (moments.variance * moments.variance);
  return moments;
}

double kolmogorov_smirnov(std::vector<float> sample, const std::function<double(double)>& expected) {
  std::sort(sample.begin(), sample.end());
  const auto size = static_cast<double>(sample.size());
  double distance = 0;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    const double at = expected(sample[i]);
    distance = std::max({distance, at - static_cast<double>(i) / size, static_cast<double>(i + 1) / size - at});
  }
  return distance * std::sqrt(size);
}

double normal_distribution(double value) { return std::erfc(-value / std::sqrt(2.0)) / 2; }

double serial_correlation(const std::vector<float>& sample, std::size_t distance) {
  const Moments moments = moments_of(sample);
  const std::size_t pairs = sample.size() - distance;
  double product = 0;
  for (std::size_t i = 0; i < pairs; ++i) product += (sample[i] - moments.mean) * (sample[i + distance] - moments.mean);
  return product / (moments.variance * std::sqrt(static_cast<double>(pairs)));
}

}  // namespace cistern
