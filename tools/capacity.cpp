#include "tools/capacity.h"

#include <algorithm>
#include <bit>

namespace cistern {
namespace {

// The largest device that the simulated driver makes has 8 TiB.
constexpr std::uint64_t kMostSteps = (std::uint64_t{8} << 40) / kCapacityStep;

}  // namespace

std::optional<std::uint64_t> find_least_capacity(const ReplayScript& script, const AllocatorOptions& options,
                                                 const CapacityProgress& progress) {
  // A search that doubles and then halves takes about twice the binary digits of its answer.
  std::uint64_t tried = 0;
  const auto share = [&] {
    const auto expected = 2 * std::bit_width(script.peak_live_bytes / kCapacityStep + 1);
    return std::min(1.0, static_cast<double>(tried++) / static_cast<double>(expected));
  };
  const auto try_steps = [&](std::uint64_t steps) {
    if (steps == 0) return script.peak_live_bytes == 0;  // no device has no memory
    if (progress) progress(steps * kCapacityStep, share());
    return completes(script, steps * kCapacityStep, options);
  };
  // Nothing completes in less than the peak, so the step below it is a good lower bound.
  std::uint64_t fails = script.peak_live_bytes / kCapacityStep;
  if (script.peak_live_bytes % kCapacityStep == 0 && fails > 0) --fails;
  if (fails >= kMostSteps) return std::nullopt;
  if (try_steps(fails)) return fails * kCapacityStep;

  std::uint64_t completed = fails + 1;
  while (!try_steps(completed)) {
    if (completed == kMostSteps) return std::nullopt;
    fails = completed;
    completed = std::min(completed * 2, kMostSteps);
  }
  while (completed - fails > 1) {
    const std::uint64_t middle = fails + (completed - fails) / 2;
    (try_steps(middle) ? completed : fails) = middle;
  }
  return completed * kCapacityStep;
}

}  // namespace cistern
