#include "tools/replay.h"

#include <cistern/allocator.h>
#include <cistern/error.h>
#include <cistern/stream.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <utility>

#include "runtime/context.h"
#include "runtime/driver_error.h"
#include "runtime/stream_access.h"

namespace cistern {
namespace {

constexpr int kDevice = 0;

// The streams of a script on a device: made in ascending order, destroyed at the end.
class ReplayStreams {
 public:
  ReplayStreams(const DriverApi& api, const std::vector<std::uint32_t>& numbers)
      : api_(api), contexts_(api), context_(api, contexts_.primary(kDevice)), numbers_(numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i) streams_.push_back(create());
  }
  ~ReplayStreams() {
    for (const CUstream handle : created_) api_.stream_destroy(handle);
  }
  ReplayStreams(const ReplayStreams&) = delete;
  ReplayStreams& operator=(const ReplayStreams&) = delete;

  // Requires: one of the script's numbers. They are few, but each may be any number.
  const Stream& operator[](std::uint32_t number) const {
    return streams_[static_cast<std::size_t>(std::ranges::lower_bound(numbers_, number) - numbers_.begin())];
  }

 private:
  Stream create() {
    CUstream handle = nullptr;
    check_driver(api_, api_.stream_create_with_priority(&handle, CU_STREAM_NON_BLOCKING, 0),
                 DriverEntryId::stream_create_with_priority, [] { return std::string("a replay's stream"); });
    created_.push_back(handle);
    StreamIdentity identity;
    check_driver(api_, identify_stream(api_, handle, &identity), DriverEntryId::stream_get_id,
                 [] { return std::string("a replay's stream"); });
    return StreamAccess::wrap(api_, identity, kDevice);
  }

  const DriverApi& api_;
  Contexts contexts_;
  ContextGuard context_;
  std::vector<CUstream> created_;
  std::vector<std::uint32_t> numbers_;  // ascending
  std::vector<Stream> streams_;         // in the same order
};

enum class OnOutOfMemory { go_on, stop };

// One allocator over one device, through which a script is passed any number of times.
class Replayer {
 public:
  Replayer(const ReplayScript& script, ReplayDevice& device, const ReplaySettings& settings)
      : device_(device),
        streams_(device.api(), script.streams),
        allocator_({&device.api(), settings.options}),
        blocks_(script.blocks, nullptr) {
    if (settings.memory_fraction) allocator_.set_memory_fraction(*settings.memory_fraction, kDevice);
    device_.start_memory_watch();
  }

  // Passes `operations` once. Calls `after(n)` when n operations are done. False if memory
  // ran out and the pass stopped there.
  template <class After>
  bool pass(std::span<const TraceOperation> operations, OnOutOfMemory policy, After&& after) {
    const bool ticks = device_.has_event_lag();
    std::size_t done = 0;
    for (const TraceOperation& operation : operations) {
      if (operation.kind == TraceOperation::step) continue;
      if (!perform(operation) && policy == OnOutOfMemory::stop) return false;
      if (ticks) device_.tick();
      after(++done);
    }
    return true;
  }

  // Frees what a pass left live, so that the next begins as the first did.
  void free_live_blocks() {
    for (void*& block : blocks_) allocator_.deallocate(std::exchange(block, nullptr));
  }

  CachingAllocator& allocator() { return allocator_; }
  MemoryStats stats() const { return allocator_.memory_stats(kDevice); }
  // Requests so far; the statistics count those alone that a device could have had.
  std::int64_t refused() const { return refused_; }

 private:
  // False if memory ran out: the block stays null, and so its record and free are nothing.
  bool perform(const TraceOperation& operation) {
    void*& block = blocks_[operation.id];
    switch (operation.kind) {
      case TraceOperation::allocate:
        return allocate(operation, block);
      case TraceOperation::record:
        if (block != nullptr) record(block, operation.stream);
        return true;
      case TraceOperation::free:
        if (block != nullptr) allocator_.deallocate(std::exchange(block, nullptr));
        return true;
      case TraceOperation::step:
        return true;
    }
    return true;
  }

  bool allocate(const TraceOperation& operation, void*& block) {
    block = nullptr;
    if (operation.bytes == 0) return true;
    try {
      block = operation.stream == 0 ? allocator_.allocate(operation.bytes, StreamHandle{nullptr}, kDevice)
                                    : allocator_.allocate(operation.bytes, streams_[operation.stream]);
    } catch (const OutOfMemoryError&) {
      ++refused_;
      return false;
    }
    return true;
  }

  void record(void* block, std::uint32_t stream) {
    if (stream == 0)
      allocator_.record_stream(block, StreamHandle{nullptr});
    else
      allocator_.record_stream(block, streams_[stream]);
  }

  ReplayDevice& device_;
  ReplayStreams streams_;  // outlive the allocator, which may hold work on them
  CachingAllocator allocator_;
  std::vector<void*> blocks_;
  std::int64_t refused_ = 0;
};

// Tells `progress` now and then how far a pass of `ops` operations is.
class PassProgress {
 public:
  PassProgress(const ReplayProgress& progress, std::string_view phase, std::size_t ops)
      : progress_(progress), phase_(phase), ops_(ops) {}
  void operator()(std::size_t done) const {
    constexpr std::size_t kInterval = std::size_t{1} << 14;
    if (done % kInterval == 0 && progress_) progress_(phase_, static_cast<double>(done) / static_cast<double>(ops_));
  }

 private:
  const ReplayProgress& progress_;
  std::string_view phase_;
  std::size_t ops_;
};

constexpr auto kNothingAfter = [](std::size_t) {};

// A copy of the operations with a share of the sizes made smaller by a sixteenth.
std::vector<TraceOperation> perturbed(const ReplayScript& script, double share, std::mt19937_64& random) {
  std::vector<TraceOperation> operations(script.operations.begin(), script.operations.end());
  // Of the generator's own bits: the standard's distributions differ between libraries.
  constexpr double kScale = 1.0 / 9007199254740992.0;  // 2^-53
  for (TraceOperation& operation : operations)
    if (operation.kind == TraceOperation::allocate && static_cast<double>(random() >> 11) * kScale < share)
      operation.bytes -= operation.bytes / 16;
  return operations;
}

// The second and third pass. Returns the memory-management calls of the third.
std::uint64_t repeat(Replayer& replayer, const ReplayScript& script, ReplayDevice& device,
                     const ReplaySettings& settings, const ReplayProgress& progress) {
  std::mt19937_64 random(settings.seed);
  std::uint64_t calls = 0;
  for (const char* phase : {"second pass", "third pass"}) {
    std::vector<TraceOperation> changed;
    if (settings.perturbed_share > 0) changed = perturbed(script, settings.perturbed_share, random);
    const std::span<const TraceOperation> operations = changed.empty() ? script.operations : changed;
    replayer.free_live_blocks();
    const DriverFigures before = device.figures();
    replayer.pass(operations, OnOutOfMemory::go_on, PassProgress(progress, phase, script.ops));
    calls = (device.figures() - before).memory_management_calls();
  }
  return calls;
}

// Host time of an operation over a warm cache: the best of enough passes to take half a second.
double time_passes(Replayer& replayer, const ReplayScript& script, const ReplayProgress& progress) {
  using Clock = std::chrono::steady_clock;
  constexpr double kEnoughNs = 0.5e9;
  if (script.ops == 0) return 0;
  double best = std::numeric_limits<double>::max();
  for (double total = 0; total < kEnoughNs;) {
    replayer.free_live_blocks();
    const auto start = Clock::now();
    replayer.pass(script.operations, OnOutOfMemory::go_on, kNothingAfter);
    const double elapsed = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    best = std::min(best, elapsed);
    total += std::max(elapsed, 1.0);
    if (progress) progress("timing", total / kEnoughNs);
  }
  return best / static_cast<double>(script.ops);
}

// The clock's passes for a device that is real, on a simulated one of its size.
double time_on_simulated(const ReplayScript& script, const ReplayDevice& device, const ReplaySettings& settings,
                         const ReplayProgress& progress) {
  SimulatedOptions options;
  options.capacity_bytes = device.capacity_bytes();
  const auto simulated = make_simulated_replay_device(options);
  Replayer replayer(script, *simulated, settings);
  replayer.pass(script.operations, OnOutOfMemory::go_on, kNothingAfter);
  return time_passes(replayer, script, progress);
}

}  // namespace

ReplayScript make_script(const Trace& trace, std::optional<std::size_t> steps) {
  ReplayScript script;
  script.blocks = trace.id_count;
  std::vector<std::uint64_t> live(trace.id_count, 0);
  std::uint64_t live_bytes = 0;
  std::size_t end = 0;
  for (const TraceOperation& operation : trace.operations) {
    if (steps && script.steps == *steps) break;
    ++end;
    if (operation.kind == TraceOperation::step) {
      ++script.steps;
      continue;
    }
    ++script.ops;
    if (operation.kind == TraceOperation::allocate) live_bytes += live[operation.id] = operation.bytes;
    if (operation.kind == TraceOperation::free) live_bytes -= live[operation.id];
    script.peak_live_bytes = std::max(script.peak_live_bytes, live_bytes);
  }
  script.operations = std::span(trace.operations).first(end);
  std::ranges::copy_if(trace.streams, std::back_inserter(script.streams),
                       [](std::uint32_t stream) { return stream != 0; });
  return script;
}

ReplayFigures measure_replay(const ReplayScript& script, ReplayDevice& device, const ReplaySettings& settings,
                             const ReplayProgress& progress) {
  Replayer replayer(script, device, settings);
  ReplayFigures figures;
  const DriverFigures before = device.figures();
  replayer.pass(script.operations, OnOutOfMemory::go_on, PassProgress(progress, "first pass", script.ops));
  figures.driver = device.figures() - before;
  figures.peak_reserved_bytes = device.peak_reserved_bytes();
  figures.retries = replayer.stats().num_alloc_retries;
  figures.ooms = replayer.refused();
  figures.repeat_driver_calls = repeat(replayer, script, device, settings, progress);
  figures.ns_per_op = device.is_simulated() ? time_passes(replayer, script, progress)
                                            : time_on_simulated(script, device, settings, progress);
  return figures;
}

std::int64_t replay_checkpoints(const ReplayScript& script, ReplayDevice& device, const ReplaySettings& settings,
                                std::size_t count, const CheckpointSink& sink, const ReplayProgress& progress) {
  Replayer replayer(script, device, settings);
  const PassProgress pass_progress(progress, "replaying", script.ops);
  const std::size_t interval = std::max<std::size_t>(1, script.ops / count);
  replayer.pass(script.operations, OnOutOfMemory::go_on, [&](std::size_t done) {
    pass_progress(done);
    if (done % interval == 0 || done == script.ops) sink(done, false, replayer.stats());
  });
  replayer.allocator().empty_cache();
  sink(script.ops, true, replayer.stats());
  return replayer.refused();
}

bool completes(const ReplayScript& script, std::uint64_t capacity_bytes, const AllocatorOptions& options) {
  SimulatedOptions simulated;
  simulated.capacity_bytes = capacity_bytes;
  const auto device = make_simulated_replay_device(simulated);
  ReplaySettings settings;
  settings.options = options;
  Replayer replayer(script, *device, settings);
  return replayer.pass(script.operations, OnOutOfMemory::stop, kNothingAfter);
}

}  // namespace cistern
