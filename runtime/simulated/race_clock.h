#pragma once

// Vector clocks: what is known to come before what.
//
// A component is a chain of moments, each before the next: the host is component 0, each
// stream has one. A clock holds, for each component, the latest moment that it comes after.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cistern::simulated {

// A moment of one component. Time 0 is before everything.
struct RaceEpoch {
  std::uint32_t component = 0;
  std::uint64_t time = 0;
};

class RaceClock {
 public:
  // Whether the moment comes before (or is) what this clock belongs to.
  [[nodiscard]] bool covers(RaceEpoch epoch) const { return epoch.time <= time_of(epoch.component); }
  [[nodiscard]] std::uint64_t time_of(std::uint32_t component) const {
    return component < times_.size() ? times_[component] : 0;
  }
  void advance(RaceEpoch epoch) {
    if (epoch.component >= times_.size()) times_.resize(epoch.component + std::size_t{1});
    times_[epoch.component] = std::max(times_[epoch.component], epoch.time);
  }
  void join(const RaceClock& other) {
    if (other.times_.size() > times_.size()) times_.resize(other.times_.size());
    for (std::size_t i = 0; i < other.times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
  }

 private:
  std::vector<std::uint64_t> times_;
};

}  // namespace cistern::simulated
