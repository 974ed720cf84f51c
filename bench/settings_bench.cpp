// What does a setting, a tag or a pool cost a request that hits the cache? Warm pairs of 4 KiB with it, in turn with
// those without it, of one thread, and of two with a stream each: the time of one thread's pair.

#include <cistern/mem_pool.h>
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

enum class With {
  options,
  tag,
  pool,  // whose blocks these are
  another_thread_in_a_pool,
};

// A heap, and what its pairs come with.
class SetHeap {
 public:
  SetHeap(Ring ring, const std::string& options, With with) : heap_(ring, options), with_(with) {
    if (with == With::another_thread_in_a_pool) guard_.emplace(pool_);
  }

  void run(const Stream& stream, std::size_t count) {
    std::optional<TagScope> tag;
    if (with_ == With::tag) tag.emplace("bench");
    std::optional<MemPoolGuard> guard;
    if (with_ == With::pool) guard.emplace(pool_);
    run_pairs(heap_.on_stream(stream), kBytes, count);
  }

 private:
  HotHeap heap_;
  With with_;
  MemPool pool_{heap_.allocator()};
  std::optional<MemPoolGuard> guard_;  // of the thread that measures, which allocates nothing
};

void pair_under(benchmark::State& state, const std::string& options, With with) {
  SetHeap plain(Ring::off, policy_text(), With::options);
  SetHeap plain_with_history(Ring::on, policy_text(), With::options);
  SetHeap set(Ring::off, options, with);
  SetHeap set_with_history(Ring::on, options, with);
  const std::array<Stream, 2> streams = {Stream::create(), Stream::create()};
  Workers workers(streams.size());
  const auto way_of = [&](SetHeap& heap, std::size_t active) -> TimedWay {
    const auto pairs_of = [&](std::size_t count) {
      return [&, count](std::size_t thread) { heap.run(streams[thread], count); };
    };
    return [&workers, active, work = pairs_of(kPairs), company = pairs_of(kPairsOfCompany)] {
      return workers.run(active, work, company) / kPairs;
    };
  };
  compare(state, kRounds,
          {{"plain_ns", way_of(plain, 1)},
           {"cistern_ns", way_of(set, 1)},
           {"plain_history_ns", way_of(plain_with_history, 1)},
           {"history_ns", way_of(set_with_history, 1)},
           {"plain_two_ns", way_of(plain, 2)},
           {"two_ns", way_of(set, 2)},
           {"history_two_ns", way_of(set_with_history, 2)}});
}

BENCHMARK_CAPTURE(pair_under, expandable_segments, "policy:expandable", With::options)->Iterations(1)->UseManualTime();
BENCHMARK_CAPTURE(pair_under, max_split_size, policy_text() + ",max_split_size_mb:128", With::options)
    ->Iterations(1)
    ->UseManualTime();
BENCHMARK_CAPTURE(pair_under, garbage_collection,
                  policy_text() + ",garbage_collection_threshold:0.8,per_process_memory_fraction:0.9", With::options)
    ->Iterations(1)
    ->UseManualTime();
BENCHMARK_CAPTURE(pair_under, a_tag, policy_text(), With::tag)->Iterations(1)->UseManualTime();
BENCHMARK_CAPTURE(pair_under, a_pool, policy_text(), With::pool)->Iterations(1)->UseManualTime();
BENCHMARK_CAPTURE(pair_under, a_thread_in_a_pool, policy_text(), With::another_thread_in_a_pool)
    ->Iterations(1)
    ->UseManualTime();

}  // namespace
}  // namespace cistern
