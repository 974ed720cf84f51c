#pragma once

// Times several ways of doing the same work in one run, in turn, so that a machine whose
// speed drifts gives ratios that can be believed.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

namespace cistern {

// What `work`, done once, took for each of its `operations`.
template <class Work>
double nanoseconds_each(std::size_t operations, Work&& work) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  work();
  const std::chrono::duration<double, std::nano> elapsed = Clock::now() - start;
  return elapsed.count() / static_cast<double>(operations);
}

// Requires: at least one value.
inline double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Does some of the work and returns its nanoseconds an operation, as it has timed them itself; not a
// number if they mean nothing.
using TimedWay = std::function<double()>;

// Calls each of `ways` once a round, after one round that is not counted. Returns the median of
// the numbers that each has returned; not a number where there were too few.
inline std::vector<double> interleaved_medians(const std::vector<TimedWay>& ways, int rounds) {
  std::vector<std::vector<double>> times(ways.size());
  for (int round = -1; round < rounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const double time = ways[i]();
      if (round >= 0 && !std::isnan(time)) times[i].push_back(time);
    }
  }
  std::vector<double> medians;
  medians.reserve(times.size());
  constexpr std::size_t kFew = 5;
  for (auto& of_one : times) {
    const bool is_enough = of_one.size() >= std::min<std::size_t>(kFew, static_cast<std::size_t>(rounds));
    medians.push_back(is_enough ? median_of(std::move(of_one)) : std::numeric_limits<double>::quiet_NaN());
  }
  return medians;
}

// The same of ways that do `operations` operations a call and are timed from outside.
inline std::vector<double> interleaved_medians(const std::vector<std::function<void()>>& ways, std::size_t operations,
                                               int rounds) {
  std::vector<TimedWay> timed;
  timed.reserve(ways.size());
  for (const auto& way : ways) timed.emplace_back([&way, operations] { return nanoseconds_each(operations, way); });
  return interleaved_medians(timed, rounds);
}

}  // namespace cistern
