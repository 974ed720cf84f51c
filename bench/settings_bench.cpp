// What does a setting cost a request that hits the cache? Warm pairs of 4 KiB under it, in turn with those without it,
// of one thread, and of two with a stream each: the time of one thread's pair.

#include <cistern/scope.h>

#include <array>
#include <optional>
#include <string>

#include "bench/comparison.h"
#include "bench/hot_heap.h"
#include "bench/pairs.h"
#include "bench/workers.h"

namespace cistern {
namespace {

constexpr std::size_t kBytes = 4096;
constexpr std::size_t kPairs = 2000;
constexpr std::size_t kPairsOfCompany = 100;
constexpr int kRounds = 51;

void pair_under(benchmark::State& state, const std::string& options, bool has_tag) {
  HotHeap plain(Ring::off);
  HotHeap plain_with_history(Ring::on);
  HotHeap set(Ring::off, options);
  HotHeap set_with_history(Ring::on, options);
  const std::array<Stream, 2> streams = {Stream::create(), Stream::create()};
  Workers workers(streams.size());
  const auto way_of = [&](HotHeap& heap, std::size_t active, bool tags) -> TimedWay {
    const auto pairs_of = [&, tags](std::size_t count) {
      return [&, tags, count](std::size_t thread) {
        std::optional<TagScope> scope;
        if (tags) scope.emplace("bench");
        run_pairs(heap.on_stream(streams[thread]), kBytes, count);
      };
    };
    return [&workers, active, work = pairs_of(kPairs), company = pairs_of(kPairsOfCompany)] {
      return workers.run(active, work, company) / kPairs;
    };
  };
  compare(state, kRounds,
          {{"plain_ns", way_of(plain, 1, false)},
           {"cistern_ns", way_of(set, 1, has_tag)},
           {"plain_history_ns", way_of(plain_with_history, 1, false)},
           {"history_ns", way_of(set_with_history, 1, has_tag)},
           {"plain_two_ns", way_of(plain, 2, false)},
           {"two_ns", way_of(set, 2, has_tag)},
           {"history_two_ns", way_of(set_with_history, 2, has_tag)}});
}

BENCHMARK_CAPTURE(pair_under, expandable_segments, "policy:expandable", false)->Iterations(1)->UseManualTime();
BENCHMARK_CAPTURE(pair_under, max_split_size, policy_text() + ",max_split_size_mb:128", false)
    ->Iterations(1)
    ->UseManualTime();
BENCHMARK_CAPTURE(pair_under, garbage_collection,
                  policy_text() + ",garbage_collection_threshold:0.8,per_process_memory_fraction:0.9", false)
    ->Iterations(1)
    ->UseManualTime();
BENCHMARK_CAPTURE(pair_under, a_tag, policy_text(), true)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
