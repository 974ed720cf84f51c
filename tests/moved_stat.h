#pragma once

// A statistic moved by hand, one number at a time: what counters are compared with.

#include <cistern/stats.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace cistern {

inline void move(Stat& stat, std::int64_t amount) {
  stat.current += amount;
  stat.peak = std::max(stat.peak, stat.current);
  (amount > 0 ? stat.allocated : stat.freed) += std::abs(amount);
}

}  // namespace cistern
