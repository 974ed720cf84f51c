// What do streams, threads and pools cost that come, have two blocks and end, and what do they leave behind? Each in a
// heap of its own, threads with their per-thread default streams, pools beside others that stay. `reserved_mib` is what
// the device holds in the end: no more than one of them had, or it grows with each.

#include <cistern/mem_pool.h>
#include <cistern/stream.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "bench/comparison.h"
#include "bench/hot_heap.h"

namespace cistern {
namespace {

constexpr std::size_t kTimes = 100;
constexpr int kRounds = 21;

// A block of each pool.
template <class Allocate>
void use(CachingAllocator& allocator, Allocate&& allocate) {
  void* const small = allocate(std::size_t{4096});
  void* const large = allocate(std::size_t{3} << 20);
  allocator.deallocate(small);
  allocator.deallocate(large);
}

void compare_ends(benchmark::State& state, HotHeap& heap, const std::function<void()>& one) {
  compare(state, kRounds, {{"cistern_ns", [&] {
                              return nanoseconds_each(kTimes, [&] {
                                for (std::size_t i = 0; i < kTimes; ++i) one();
                              });
                            }}});
  const std::int64_t reserved = heap.allocator().memory_stats().reserved_bytes.all.current;
  state.counters["reserved_mib"] = static_cast<double>(reserved) / (1 << 20);
}

void streams_that_end(benchmark::State& state) {
  HotHeap heap(Ring::off);
  CachingAllocator& allocator = heap.allocator();
  compare_ends(state, heap, [&] {
    const Stream stream = Stream::create();
    use(allocator, [&](std::size_t bytes) { return allocator.allocate(bytes, stream); });
    allocator.release_stream(stream.native_handle());
  });
}

// Most of it is what a thread costs: see threads_alone_ns.
void threads_that_end(benchmark::State& state) {
  HotHeap heap(Ring::off);
  CachingAllocator& allocator = heap.allocator();
  compare_ends(state, heap, [&] {
    std::thread([&] {
      use(allocator, [&](std::size_t bytes) { return allocator.allocate(bytes, Stream::per_thread()); });
    }).join();
  });
  state.counters["threads_alone_ns"] = nanoseconds_each(kTimes, [] {
    for (std::size_t i = 0; i < kTimes; ++i) std::thread([] {}).join();
  });
}

void pools_that_end(benchmark::State& state) {
  HotHeap heap(Ring::off);
  CachingAllocator& allocator = heap.allocator();
  std::vector<MemPool> others;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    others.emplace_back(allocator);
    static_cast<void>(others.back().allocate(4096));
  }
  compare_ends(state, heap, [&] {
    const MemPool pool(allocator);
    use(allocator, [&](std::size_t bytes) { return pool.allocate(bytes); });
  });
}

BENCHMARK(streams_that_end)->Iterations(1)->UseManualTime();
BENCHMARK(threads_that_end)->Iterations(1)->UseManualTime();
BENCHMARK(pools_that_end)->Arg(0)->Arg(1000)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
