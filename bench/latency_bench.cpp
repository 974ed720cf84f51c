// How long does the slowest hit of a thousand take? Each operation, an allocation or a free, between two
// readings of the time-stamp counter, whose own time (clock_ns) is part of every figure. Pairs of
// one size, and replacements in a heap of 1,000 mixed blocks, ours and the peer's in turn.
// What interrupts the machine is in the maximum, and on a busy one before it. Before a round each heap does one that
// is not counted: the others have taken its place in the processor's caches meanwhile.

#include <algorithm>
#include <array>
#include <memory>

#include "bench/comparison.h"
#include "bench/hot_heap.h"
#include "bench/mixed_sizes.h"
#include "bench/time_stamp.h"

namespace cistern {
namespace {

constexpr std::size_t kOperations = 50000;  // a round
constexpr int kRounds = 40;

// Counts of durations in ticks; those above the last count as it, but for the maximum.
class Durations {
 public:
  void add(std::uint64_t ticks) {
    ++counts_[std::min<std::uint64_t>(ticks, counts_.size() - 1)];
    ++total_;
    maximum_ = std::max(maximum_, ticks);
  }
  // The least duration that this share of all does not exceed.
  [[nodiscard]] double quantile_ns(double share) const {
    const auto rank = static_cast<std::uint64_t>(share * static_cast<double>(total_ - 1));
    std::uint64_t seen = 0;
    std::size_t ticks = 0;
    while ((seen += counts_[ticks]) <= rank) ++ticks;
    return static_cast<double>(ticks) * nanoseconds_a_tick();
  }
  [[nodiscard]] double maximum_ns() const { return static_cast<double>(maximum_) * nanoseconds_a_tick(); }

 private:
  std::vector<std::uint64_t> counts_ = std::vector<std::uint64_t>(std::size_t{1} << 20);
  std::uint64_t total_ = 0;
  std::uint64_t maximum_ = 0;
};

template <class Heap>
void* timed_allocate(Heap& heap, std::size_t bytes, Durations& durations) {
  const std::uint64_t start = time_stamp();
  void* pointer = heap.allocate(bytes);
  const std::uint64_t end = time_stamp();
  durations.add(end - start);
  return pointer;
}

template <class Heap>
void timed_release(Heap& heap, void* pointer, Durations& durations) {
  const std::uint64_t start = time_stamp();
  heap.release(pointer);
  const std::uint64_t end = time_stamp();
  durations.add(end - start);
}

template <class Heap>
void timed_pairs(Heap& heap, Durations& durations) {
  for (std::size_t i = 0; i < kOperations; i += 2)
    timed_release(heap, timed_allocate(heap, 4096, durations), durations);
}

template <class Heap>
void timed_replacements(MixedSizes<Heap>& sizes, const std::vector<Replacement>& work, Durations& durations) {
  for (const Replacement& replacement : work) {
    void*& block = sizes.block(replacement);
    timed_release(sizes.heap(), block, durations);
    block = timed_allocate(sizes.heap(), replacement.bytes, durations);
  }
}

double clock_ns() {
  Durations durations;
  for (int i = 0; i < 100000; ++i) {
    const std::uint64_t start = time_stamp();
    durations.add(time_stamp() - start);
  }
  return durations.quantile_ns(0.5);
}

void report(benchmark::State& state, const std::string& who, const Durations& durations) {
  const double median = durations.quantile_ns(0.5);
  state.counters[who + "_median_ns"] = median;
  state.counters[who + "_p999_ns"] = durations.quantile_ns(0.999);
  state.counters[who + "_p9999_ns"] = durations.quantile_ns(0.9999);
  state.counters[who + "_maximum_ns"] = durations.maximum_ns();
  state.counters[who + "_p999_over_median_ns"] = durations.quantile_ns(0.999) - median;
}

struct Run {
  std::string who;
  std::function<void(Durations&)> work;
  Durations durations = {};
};

void measure(benchmark::State& state, std::vector<Run> runs) {
  while (state.KeepRunning()) {
    for (int round = -1; round < kRounds; ++round) {
      for (Run& run : runs) {
        Durations dropped;
        run.work(dropped);
        if (round >= 0) run.work(run.durations);
      }
    }
    state.SetIterationTime(runs.front().durations.quantile_ns(0.5) * 1e-9);
  }
  for (const Run& run : runs) report(state, run.who, run.durations);
  state.counters["clock_ns"] = clock_ns();
  if (const Peer* peer = process_peer()) state.SetLabel(peer->name);
}

void latency_of_pairs(benchmark::State& state) {
  HotHeap off(Ring::off);
  HotHeap on(Ring::on);
  std::vector<Run> runs;
  runs.push_back({"cistern", [&](Durations& durations) { timed_pairs(off, durations); }});
  runs.push_back({"history", [&](Durations& durations) { timed_pairs(on, durations); }});
  if (const Peer* peer = process_peer())
    runs.push_back({"peer", [peer](Durations& durations) { timed_pairs(*peer, durations); }});
  measure(state, std::move(runs));
}

void latency_of_mixed_sizes(benchmark::State& state) {
  constexpr std::size_t kLive = 1000;
  const std::vector<Replacement> work = replacements(kLive, kOperations / 2);
  HotHeap heap_off(Ring::off);
  HotHeap heap_on(Ring::on);
  MixedSizes off(heap_off, kLive, work);
  MixedSizes on(heap_on, kLive, work);
  std::vector<Run> runs;
  runs.push_back({"cistern", [&](Durations& durations) { timed_replacements(off, work, durations); }});
  runs.push_back({"history", [&](Durations& durations) { timed_replacements(on, work, durations); }});
  std::unique_ptr<MixedSizes<const Peer>> theirs;
  if (const Peer* peer = process_peer()) {
    theirs = std::make_unique<MixedSizes<const Peer>>(*peer, kLive, work);
    runs.push_back({"peer", [&](Durations& durations) { timed_replacements(*theirs, work, durations); }});
  }
  measure(state, std::move(runs));
}

BENCHMARK(latency_of_pairs)->Iterations(1)->UseManualTime();
BENCHMARK(latency_of_mixed_sizes)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
