// What does a hit cost? One allocate-and-free pair of one size on one stream, the pool warm,
// beside the same pair of tcmalloc and of the C library in the same run, in turn.
// driver_calls proves that the driver was not asked.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <benchmark/benchmark.h>

#include "bench/host_allocator.h"
#include "bench/interleaved.h"

namespace cistern {
namespace {

constexpr std::size_t kPairs = 20000;
constexpr int kRounds = 31;

template <class Allocate, class Release>
void run_pairs(std::size_t bytes, Allocate&& allocate, Release&& release) {
  for (std::size_t i = 0; i < kPairs; ++i) {
    void* pointer = allocate(bytes);
    benchmark::DoNotOptimize(pointer);
    release(pointer);
  }
}

void warm_pair(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  SimulatedDriver driver({.backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api()});
  allocator.deallocate(allocator.allocate(bytes));
  const std::uint64_t calls_before = driver.calls();
  const HostAllocator tcmalloc = tcmalloc_allocator();
  const HostAllocator library = c_library_allocator();

  std::vector<std::function<void()>> ways;
  ways.emplace_back([&] {
    run_pairs(
        bytes, [&](std::size_t size) { return allocator.allocate(size); },
        [&](void* pointer) { allocator.deallocate(pointer); });
  });
  ways.emplace_back([&] { run_pairs(bytes, library.allocate, library.release); });
  if (tcmalloc) ways.emplace_back([&] { run_pairs(bytes, tcmalloc.allocate, tcmalloc.release); });

  while (state.KeepRunning()) {
    const std::vector<double> medians = interleaved_medians(ways, kPairs, kRounds);
    state.SetIterationTime(medians[0] * 1e-9);
    state.counters["glibc_ns"] = medians[1];
    if (tcmalloc) {
      state.counters["tcmalloc_ns"] = medians[2];
      state.counters["over_tcmalloc"] = medians[0] / medians[2];
    }
  }
  state.counters["driver_calls"] = static_cast<double>(driver.calls() - calls_before);
}

BENCHMARK(warm_pair)->Arg(512)->Arg(4096)->Arg(1 << 20)->Arg(20 << 20)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
