// What does a second thread cost the first? Warm pairs of 4 KiB on one thread, then on two at once,
// each on a stream of its own, in turn: the time of one thread's pair.

#include <array>
#include <thread>

#include "bench/comparison.h"
#include "bench/hot_heap.h"
#include "bench/pairs.h"
#include "bench/workers.h"

namespace cistern {
namespace {

constexpr std::size_t kBytes = 4096;
constexpr std::size_t kPairs = 2000;
constexpr std::size_t kPairsOfCompany = 100;
constexpr int kRounds = 101;

// The pair of one thread while `active` of them run, each in the heap that `heap_of` gives it.
template <class HeapOf>
TimedWay threads_way(Workers& workers, std::size_t active, HeapOf heap_of) {
  return [&workers, active, heap_of] {
    const auto pairs_of = [&](std::size_t count) {
      return [&heap_of, count](std::size_t thread) { run_pairs(heap_of(thread), kBytes, count); };
    };
    return workers.run(active, pairs_of(kPairs), pairs_of(kPairsOfCompany)) / kPairs;
  };
}

void two_threads(benchmark::State& state) {
  HotHeap off(Ring::off);
  HotHeap on(Ring::on);
  const std::array<Stream, 2> streams = {Stream::create(), Stream::create()};
  Workers workers(streams.size());
  std::vector<NamedWay> ways;
  for (std::size_t active = 1; active <= streams.size(); ++active) {
    const std::string end = active == 1 ? "_one_ns" : "_two_ns";
    for (auto [who, heap] : {std::pair("cistern", &off), std::pair("history", &on)})
      ways.push_back({who + end, threads_way(workers, active, [heap = heap, &streams](std::size_t thread) {
                        return heap->on_stream(streams[thread]);
                      })});
    if (const Peer* peer = process_peer())
      ways.push_back({"peer" + end, threads_way(workers, active, [peer](std::size_t thread) {
                        return peer->on_stream(static_cast<unsigned>(thread));
                      })});
  }
  state.counters["processors"] = std::thread::hardware_concurrency();
  compare(state, kRounds, std::move(ways));
  state.counters["dropped_rounds"] = static_cast<double>(workers.dropped());
}

BENCHMARK(two_threads)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
