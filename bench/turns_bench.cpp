// What do streams cost that one thread serves in turn? Two blocks each time, of 4 and of 8 KiB, which is all that ever
// lives: with a few streams, or many, each turn comes up to the peak. Beside the same turns on one stream.

#include <cistern/stream.h>

#include <cstddef>
#include <string>
#include <vector>

#include "bench/comparison.h"
#include "bench/hot_heap.h"

namespace cistern {
namespace {

constexpr std::size_t kPairs = 2000;
constexpr int kRounds = 101;

// Nanoseconds of a block that comes and goes.
double time_turns(CachingAllocator& allocator, const std::vector<Stream>& streams) {
  return nanoseconds_each(kPairs, [&] {
    for (std::size_t i = 0; i < kPairs / 2; ++i) {
      const Stream& stream = streams[i % streams.size()];
      void* const first = allocator.allocate(4096, stream);
      void* const second = allocator.allocate(8192, stream);
      allocator.deallocate(first);
      allocator.deallocate(second);
    }
  });
}

void streams_in_turn(benchmark::State& state) {
  HotHeap off(Ring::off);
  HotHeap on(Ring::on);
  HotHeap one_off(Ring::off);
  HotHeap one_on(Ring::on);
  std::vector<Stream> streams;
  for (std::int64_t i = 0; i < state.range(0); ++i) streams.push_back(Stream::create());
  const std::vector<Stream> one = {streams.front()};
  compare(state, kRounds,
          {{"cistern_ns", [&] { return time_turns(off.allocator(), streams); }},
           {"history_ns", [&] { return time_turns(on.allocator(), streams); }},
           {"one_ns", [&] { return time_turns(one_off.allocator(), one); }},
           {"one_history_ns", [&] { return time_turns(one_on.allocator(), one); }}});
}

BENCHMARK(streams_in_turn)->Arg(2)->Arg(8)->Arg(32)->Arg(200)->Arg(1000)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
