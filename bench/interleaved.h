#pragma once

// Times several ways of doing the same work in one run, in turn, so that a machine whose
// speed drifts gives ratios that can be believed.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

namespace cistern {

// Calls each of `ways` once a round, after one round that is not counted; a call does
// `operations` operations. Returns each way's median nanoseconds an operation.
inline std::vector<double> interleaved_medians(const std::vector<std::function<void()>>& ways, std::size_t operations,
                                               int rounds) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::vector<double>> times(ways.size());
  for (int round = -1; round < rounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const auto start = Clock::now();
      ways[i]();
      const std::chrono::duration<double, std::nano> elapsed = Clock::now() - start;
      if (round >= 0) times[i].push_back(elapsed.count() / static_cast<double>(operations));
    }
  }
  std::vector<double> medians;
  for (auto& of_one : times) {
    const auto middle = of_one.begin() + static_cast<std::ptrdiff_t>(of_one.size() / 2);
    std::nth_element(of_one.begin(), middle, of_one.end());
    medians.push_back(*middle);
  }
  return medians;
}

}  // namespace cistern
