#pragma once

#include <cistern/stats.h>

#include <cstdint>

namespace cistern {

inline Stat stat(std::int64_t current, std::int64_t peak, std::int64_t allocated, std::int64_t freed) {
  return {current, peak, allocated, freed};
}

}  // namespace cistern
