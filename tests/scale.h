#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>

namespace cistern {

// How often to repeat what is worth repeating: `full_count` times in ./dev test --long, and
// the share CISTERN_TEST_SCALE of it, but no fewer than `least`, where that is set.
inline std::size_t scaled(std::size_t full_count, std::size_t least = 1) {
  const char* text = std::getenv("CISTERN_TEST_SCALE");
  const double share = text != nullptr ? std::clamp(std::atof(text), 0.0, 1.0) : 1.0;
  return std::max(least, static_cast<std::size_t>(static_cast<double>(full_count) * share));
}

}  // namespace cistern
