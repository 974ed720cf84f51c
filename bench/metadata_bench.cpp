// What do the library's own books take, and does a hit take any? Host memory as it is asked for
// (host_memory.h), without the driver's: on each trace at its peak, over as many passes as it takes to know them, and
// in a heap of 10,000 mixed blocks, beside what is reserved of the device; and how often warm operations ask for some.

#include <cistern/simulated.h>

#include <benchmark/benchmark.h>

#include <cstdint>
#include <map>
#include <string>

#include "bench/driver_around.h"
#include "bench/host_memory.h"
#include "bench/hot_heap.h"
#include "bench/mixed_sizes.h"
#include "bench/pairs.h"
#include "bench/trace_pass.h"

namespace cistern {
namespace {

constexpr std::size_t kCapacity = std::size_t{256} << 30;

// A driver call, whose host memory is not counted: what makes some is no hit.
struct CountedCall : DriverCall {
  CountedCall() { ++made; }
  static inline std::uint64_t made = 0;
};

// An allocator over a driver of its own.
class WatchedHeap {
 public:
  explicit WatchedHeap(Ring ring, std::size_t streams = 1)
      : simulated_({.capacity_bytes = kCapacity, .backing = Backing::none}), driver_(simulated_.api()) {
    for (std::size_t i = 1; i < streams; ++i) streams_.push_back(simulated_.create_stream());
    reset_host_memory_peak();
    before_ = host_memory();
    allocator_ =
        std::make_unique<CachingAllocator>(CachingAllocatorOptions{.driver = &driver_.api(), .options = hot_options()});
    allocator_->record_history(history_of(ring));
  }

  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t stream = 0) {
    return allocator_->allocate(bytes, streams_[stream]);
  }
  void record(void* block, std::size_t stream) { allocator_->record_stream(block, streams_[stream]); }
  void release(void* block) { allocator_->deallocate(block); }

  // As passes of traces call them: every number of a stream of theirs is below `streams`.
  [[nodiscard]] void* allocate(const TraceOperation& operation) { return allocate(operation.bytes, operation.stream); }
  void record(void* block, const TraceOperation& operation) { record(block, operation.stream); }

  // What was held at most since it was made; of mappings, what is held now.
  [[nodiscard]] std::size_t metadata_bytes() const {
    const HostMemory now = host_memory();
    return now.peak_bytes - before_.heap_bytes + now.mapped_bytes - before_.mapped_bytes;
  }
  [[nodiscard]] std::size_t reserved_bytes() const {
    return static_cast<std::size_t>(allocator_->memory_stats().reserved_bytes.all.peak);
  }

 private:
  SimulatedDriver simulated_;
  DriverAround<CountedCall> driver_;
  std::vector<StreamHandle> streams_ = {nullptr};
  HostMemory before_;
  std::unique_ptr<CachingAllocator> allocator_;
};

// The goal: a thousandth of what is reserved, and 1 MiB.
double share_of_goal(const WatchedHeap& heap) {
  const double goal = static_cast<double>(heap.reserved_bytes()) / 1000 + (1 << 20);
  return static_cast<double>(heap.metadata_bytes()) / goal;
}

void report(benchmark::State& state, const char* prefix, const WatchedHeap& heap) {
  const std::string name(prefix);
  state.counters[name + "_bytes"] = static_cast<double>(heap.metadata_bytes());
  state.counters[name + "_over_goal"] = share_of_goal(heap);
  state.counters["reserved_bytes"] = static_cast<double>(heap.reserved_bytes());
}

// Operations that make no driver call are hits.
struct HitCounts {
  std::uint64_t requests = 0;  // of hits for host memory
  std::uint64_t misses = 0;
};

// Counts an operation, as long as it is there.
class CountOperation {
 public:
  explicit CountOperation(HitCounts& counts) : counts_(counts) {}
  ~CountOperation() {
    if (CountedCall::made == calls_)
      counts_.requests += host_memory_requests() - requests_;
    else
      ++counts_.misses;
  }
  CountOperation(const CountOperation&) = delete;
  CountOperation& operator=(const CountOperation&) = delete;

 private:
  HitCounts& counts_;
  std::uint64_t requests_ = host_memory_requests();
  std::uint64_t calls_ = CountedCall::made;
};

// A heap as a pass of a trace calls it, each of whose operations is counted.
class CountedHeap {
 public:
  explicit CountedHeap(WatchedHeap& heap) : heap_(heap) {}
  [[nodiscard]] void* allocate(const TraceOperation& operation) {
    const CountOperation count(counts_);
    return heap_.allocate(operation);
  }
  void record(void* block, const TraceOperation& operation) {
    const CountOperation count(counts_);
    heap_.record(block, operation);
  }
  void release(void* block) {
    const CountOperation count(counts_);
    heap_.release(block);
  }
  [[nodiscard]] const HitCounts& counts() const { return counts_; }

 private:
  WatchedHeap& heap_;
  HitCounts counts_;
};

// Steps that come again are known by then, and followed if there is room for them.
constexpr int kWarmPasses = 8;

void metadata_of_trace(benchmark::State& state, const std::string& path) {
  const Trace trace = read_trace(path);
  const std::size_t streams = trace.streams.empty() ? 1 : trace.streams.back() + std::size_t{1};
  std::vector<void*> blocks(trace.id_count, nullptr);
  while (state.KeepRunning()) {
    for (const auto& [name, ring] : {std::pair("cistern", Ring::off), std::pair("history", Ring::on)}) {
      WatchedHeap heap(ring, streams);
      for (int i = 0; i < kWarmPasses; ++i) pass(trace, heap, blocks);
      CountedHeap counted(heap);
      pass(trace, counted, blocks);
      report(state, name, heap);
      state.counters[std::string(name) + "_requests_of_hits"] = static_cast<double>(counted.counts().requests);
    }
    state.counters["operations"] = static_cast<double>(operations_of(trace));
    state.SetIterationTime(1e-9);  // nothing is timed
  }
}

void metadata_of_mixed_sizes(benchmark::State& state) {
  constexpr std::size_t kLive = 10000;
  const std::vector<Replacement> work = replacements(kLive, 2 * kLive);
  while (state.KeepRunning()) {
    for (const auto& [name, ring] : {std::pair("cistern", Ring::off), std::pair("history", Ring::on)}) {
      WatchedHeap heap(ring);
      MixedSizes sizes(heap, kLive, work);
      sizes.run();
      report(state, name, heap);
    }
    state.SetIterationTime(1e-9);
  }
}

// Requests for host memory that `work` makes when it is done again.
template <class Work>
double requests_of(Work&& work) {
  work();
  work();
  const std::uint64_t before = host_memory_requests();
  work();
  return static_cast<double>(host_memory_requests() - before);
}

HitCounts replace_again(MixedSizes<WatchedHeap>& sizes, const std::vector<Replacement>& work) {
  sizes.run();
  sizes.run();
  HitCounts counts;
  for (const Replacement& replacement : work) {
    const CountOperation count(counts);
    sizes.replace(replacement);
  }
  return counts;
}

void count_requests(benchmark::State& state, const std::string& prefix, Ring ring) {
  constexpr std::size_t kPairs = 10000;
  WatchedHeap heap(ring, 2);
  const auto count = [&](const std::string& what, double requests) { state.counters[prefix + what] = requests; };
  count("_pair_4KiB", requests_of([&] { run_pairs(heap, 4096, kPairs); }));
  count("_pair_20MiB", requests_of([&] { run_pairs(heap, 20 << 20, kPairs); }));
  count("_recorded_pair", requests_of([&] {
          for (std::size_t i = 0; i < kPairs; ++i) {
            void* block = heap.allocate(4096);
            heap.record(block, std::size_t{1});
            heap.release(block);
          }
        }));
  constexpr std::size_t kLive = 1000;
  const std::vector<Replacement> work = replacements(kLive, 20000);
  MixedSizes sizes(heap, kLive, work);
  const HitCounts replaced = replace_again(sizes, work);
  count("_mixed_sizes", static_cast<double>(replaced.requests));
  count("_misses", static_cast<double>(replaced.misses));
}

void host_requests_on_hits(benchmark::State& state) {
  while (state.KeepRunning()) {
    count_requests(state, "cistern", Ring::off);
    count_requests(state, "history", Ring::on);
    state.SetIterationTime(1e-9);
  }
}

[[maybe_unused]] const bool kRegistered = register_traces("metadata_of_trace", metadata_of_trace);
BENCHMARK(metadata_of_mixed_sizes)->Iterations(1)->UseManualTime();
BENCHMARK(host_requests_on_hits)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
