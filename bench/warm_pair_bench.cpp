// What does a hit cost? One allocate-and-free pair of one size on one stream, the pool warm,
// through a CachingAllocator and through the free functions, beside the peer's pair in turn.
// driver_calls proves that the driver was not asked.

#include <cistern/simulated.h>

#include "bench/comparison.h"
#include "bench/hot_heap.h"
#include "bench/pairs.h"

namespace cistern {
namespace {

// Rounds are short and many: one that is interrupted is far from the median.
constexpr std::size_t kPairs = 5000;
constexpr int kRounds = 151;

// The process's heap has one history: it is changed before each round, outside of the clock, and a new ring is
// filled once, for the host gives its pages as they are written first.
TimedWay process_way(std::size_t bytes, Ring ring) {
  return [bytes, ring] {
    record_history(history_of(ring));
    if (ring == Ring::on) run_pairs(ProcessHeap(), bytes, kDefaultHistoryEntries / 2);
    return time_pairs(ProcessHeap(), bytes, kPairs);
  };
}

void warm_pair(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  HotHeap off(Ring::off);
  HotHeap on(Ring::on);
  TimedWay peer_way;
  if (const Peer* peer = process_peer())
    peer_way = [peer, bytes, pairs = pairs_for_a_round(*peer, bytes, kPairs)] {
      return time_pairs(*peer, bytes, pairs);
    };
  run_pairs(off, bytes, 1);
  run_pairs(on, bytes, 1);
  run_pairs(ProcessHeap(), bytes, 1);
  const std::uint64_t calls_before = simulated::driver().calls();
  compare(state, kRounds,
          {{"cistern_ns", [&] { return time_pairs(off, bytes, kPairs); }},
           {"history_ns", [&] { return time_pairs(on, bytes, kPairs); }},
           {"process_ns", process_way(bytes, Ring::off)},
           {"process_history_ns", process_way(bytes, Ring::on)},
           {"peer_ns", peer_way}});
  state.counters["driver_calls"] = static_cast<double>(simulated::driver().calls() - calls_before);
}

BENCHMARK(warm_pair)->Arg(512)->Arg(4096)->Arg(1 << 20)->Arg(20 << 20)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
