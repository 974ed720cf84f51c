#pragma once

// The least capacity of a device at which a trace completes.
//
// Not thread-safe: a search runs on one thread.

#include <cistern/options.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "tools/replay.h"

namespace cistern {

// Devices hand out memory in granules of this size, so no finer answer means anything.
inline constexpr std::uint64_t kCapacityStep = std::uint64_t{2} << 20;

// Told about each capacity before it is tried, and the share of the search that is done (0..1).
using CapacityProgress = std::function<void(std::uint64_t capacity_bytes, double share)>;

// The upper bound is found by doubling from the peak live bytes, the answer by bisection. It
// is a multiple of kCapacityStep at which the script completed and one step below which it
// did not: both were run. Nothing if no device that can be simulated is large enough.
[[nodiscard]] std::optional<std::uint64_t> find_least_capacity(const ReplayScript& script,
                                                               const AllocatorOptions& options,
                                                               const CapacityProgress& progress = {});

}  // namespace cistern
