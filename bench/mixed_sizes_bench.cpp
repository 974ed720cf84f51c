// What does an operation cost in a heap full of different blocks (mixed_sizes.h)? Time is of one
// free and one allocation. driver_calls tells how often the cache, which was warm, missed.

#include <cistern/simulated.h>

#include <memory>

#include "bench/comparison.h"
#include "bench/hot_heap.h"
#include "bench/mixed_sizes.h"

namespace cistern {
namespace {

constexpr std::size_t kOperations = 20000;
// The others have taken its place in the processor's caches by the time a heap's next round begins.
constexpr std::size_t kOperationsARound = 100000;
constexpr int kRounds = 15;

template <class Heap>
TimedWay way_of(MixedSizes<Heap>& sizes) {
  return [&sizes] { return nanoseconds_each(kOperationsARound, [&] { sizes.run_some(kOperationsARound); }); };
}

void mixed_sizes(benchmark::State& state) {
  const auto live = static_cast<std::size_t>(state.range(0));
  const std::vector<Replacement> work = replacements(live, kOperations);
  HotHeap heap_off(Ring::off);
  HotHeap heap_on(Ring::on);
  MixedSizes off(heap_off, live, work);
  MixedSizes on(heap_on, live, work);
  std::unique_ptr<MixedSizes<const Peer>> theirs;
  if (const Peer* peer = process_peer()) theirs = std::make_unique<MixedSizes<const Peer>>(*peer, live, work);
  for (int round = 0; round < 2; ++round) {
    off.run();
    on.run();
  }
  const std::uint64_t calls_before = simulated::driver().calls();
  compare(state, kRounds,
          {{"cistern_ns", way_of(off)},
           {"history_ns", way_of(on)},
           {"peer_ns", theirs == nullptr ? TimedWay() : way_of(*theirs)}});
  state.counters["driver_calls"] = static_cast<double>(simulated::driver().calls() - calls_before);
}

BENCHMARK(mixed_sizes)->Arg(1000)->Arg(10000)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
