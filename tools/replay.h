#pragma once

// The replay engine: passes a trace through an allocator and measures what it did.
//
// The rules: stream 0 is the default stream, the others are streams made in ascending order
// of their number; 0 bytes is no call; an allocation that runs out of memory is skipped with
// its later record and free, and the run goes on; each allocation, record and free is one tick
// of the device's event lag. Not thread-safe. Errors other than OutOfMemoryError pass through.

#include <cistern/options.h>
#include <cistern/stats.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tools/replay_device.h"
#include "tools/trace.h"

namespace cistern {

// What is replayed: a trace or its first steps, counted once.
struct ReplayScript {
  std::span<const TraceOperation> operations;  // with the ends of steps
  std::size_t blocks = 0;                      // ids are below this
  std::vector<std::uint32_t> streams;          // of the trace, but 0, ascending
  std::size_t ops = 0;                         // allocations, records and frees
  std::size_t steps = 0;
  // The most requested bytes that are live at once: no allocator can do with less.
  std::uint64_t peak_live_bytes = 0;

  // How many times that is in `bytes`; not a number, or infinite, where nothing was ever live.
  [[nodiscard]] double ratio_over_live(std::uint64_t bytes) const {
    return static_cast<double>(bytes) / static_cast<double>(peak_live_bytes);
  }
};
// `trace` must outlive the script. Without `steps`, all of it.
[[nodiscard]] ReplayScript make_script(const Trace& trace, std::optional<std::size_t> steps = std::nullopt);

struct ReplaySettings {
  AllocatorOptions options;
  std::optional<double> memory_fraction;  // set before the first allocation
  double perturbed_share = 0;             // of the sizes in the second and third pass, made smaller by a sixteenth
  std::uint64_t seed = 0;                 // chooses them, anew for each pass
};

// Told what is being done and the share of it that is done (0..1), now and then.
using ReplayProgress = std::function<void(std::string_view phase, double share)>;

// Of the first pass, but for the two that name another.
struct ReplayFigures {
  std::uint64_t peak_reserved_bytes = 0;  // as the driver counts
  DriverFigures driver;
  std::uint64_t repeat_driver_calls = 0;  // memory-management calls of the third pass
  double ns_per_op = 0;                   // the best of the passes after that
  std::int64_t retries = 0;
  std::int64_t ooms = 0;
};
// Three passes with the cache kept, then passes on the clock. On a device that is not
// simulated, those are made on a simulated one, since they time the host's work alone.
[[nodiscard]] ReplayFigures measure_replay(const ReplayScript& script, ReplayDevice& device,
                                           const ReplaySettings& settings, const ReplayProgress& progress = {});

// One pass, with the statistics after every max(1, ops / count) operations and after the last,
// then once more after empty_cache. Returns the out-of-memory errors. `sink` is told how many
// operations were done, and whether empty_cache came after them.
using CheckpointSink = std::function<void(std::size_t ops, bool after_empty_cache, const MemoryStats& stats)>;
std::int64_t replay_checkpoints(const ReplayScript& script, ReplayDevice& device, const ReplaySettings& settings,
                                std::size_t count, const CheckpointSink& sink, const ReplayProgress& progress = {});

// Whether one pass over a simulated device of this capacity runs without an out-of-memory error.
[[nodiscard]] bool completes(const ReplayScript& script, std::uint64_t capacity_bytes, const AllocatorOptions& options);

}  // namespace cistern
