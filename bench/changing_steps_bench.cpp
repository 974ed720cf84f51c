// What does an operation cost in steps that do not come again as they were (changing_steps.h)? driver_calls tells how
// many an operation makes.

#include <cistern/simulated.h>

#include <memory>

#include "bench/changing_steps.h"
#include "bench/comparison.h"
#include "bench/hot_heap.h"

namespace cistern {
namespace {

constexpr int kFirstSteps = 100;
// The others have taken its place in the processor's caches by the time a heap's next round begins.
constexpr int kStepsARound = 10;
constexpr int kRounds = 61;  // the log of paged memory is full before they are over

template <class Heap>
TimedWay way_of(ChangingSteps<Heap>& steps) {
  return [&steps] {
    steps.prepare(kStepsARound);
    return nanoseconds_each(steps.operations(), [&] { steps.run(); });
  };
}

void changing_steps(benchmark::State& state, ChangingSteps<HotHeap>::Maker make) {
  HotHeap heap_off(Ring::off);
  HotHeap heap_on(Ring::on);
  ChangingSteps off(heap_off, make);
  ChangingSteps on(heap_on, make);
  std::unique_ptr<ChangingSteps<const Peer>> theirs;
  if (const Peer* peer = process_peer()) theirs = std::make_unique<ChangingSteps<const Peer>>(*peer, make);
  for (ChangingSteps<HotHeap>* steps : {&off, &on}) {
    steps->prepare(kFirstSteps);
    steps->run();
  }
  const std::uint64_t calls_before = simulated::driver().calls();
  std::uint64_t operations = 0;
  compare(state, kRounds,
          {{"cistern_ns",
            [&] {
              const double nanoseconds = way_of(off)();
              operations += off.operations();
              return nanoseconds;
            }},
           {"history_ns", way_of(on)},
           {"peer_ns", theirs == nullptr ? TimedWay() : way_of(*theirs)}});
  state.counters["driver_calls"] =
      static_cast<double>(simulated::driver().calls() - calls_before) / (2 * static_cast<double>(operations));
}

BENCHMARK_CAPTURE(changing_steps, lengths, step_of_any_length)->Iterations(1)->UseManualTime();
BENCHMARK_CAPTURE(changing_steps, sizes, step_with_some_sizes_changed)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
