#pragma once

// Statistics at a point of a replay, in the form of PyTorch's recorded ones.

#include <cistern/stats.h>

#include <cstddef>
#include <nlohmann/json.hpp>

namespace cistern {

// {"op": ops, "stats": {...}}: memory_stats' keys without the metric; a statistic is the
// array [current, peak, allocated, freed], a counter a number.
[[nodiscard]] nlohmann::ordered_json checkpoint_json(std::size_t ops, const MemoryStats& stats);

}  // namespace cistern
