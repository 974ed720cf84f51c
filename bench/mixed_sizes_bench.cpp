// What does an operation cost in a heap full of different blocks? N blocks are live; each
// operation frees a random one and allocates a log-uniform size from 512 B to 20 MiB in its
// place. The same sizes and orders go to tcmalloc, whose memory is never touched.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "bench/host_allocator.h"
#include "bench/interleaved.h"

namespace cistern {
namespace {

constexpr std::size_t kOperations = 20000;
constexpr int kRounds = 15;

struct Replacement {
  std::uint32_t place;
  std::size_t bytes;
};

std::vector<Replacement> replacements(std::size_t live, std::size_t count) {
  std::mt19937_64 random(41);
  std::vector<Replacement> all;
  const double low = std::log(512.0);
  const double high = std::log(20.0 * 1024 * 1024);
  for (std::size_t i = 0; i < count; ++i) {
    const double share = static_cast<double>(random() >> 11) / 9007199254740992.0;
    all.push_back(
        {static_cast<std::uint32_t>(random() % live), static_cast<std::size_t>(std::exp(low + share * (high - low)))});
  }
  return all;
}

// A heap with its live blocks: what one way of doing the work keeps between rounds.
template <class Allocate, class Release>
class Heap {
 public:
  Heap(std::size_t live, const std::vector<Replacement>& work, Allocate allocate, Release release)
      : work_(work), allocate_(allocate), release_(release), blocks_(live) {
    for (std::size_t i = 0; i < live; ++i) blocks_[i] = allocate_(work_[i % work_.size()].bytes);
  }
  ~Heap() {
    for (void* block : blocks_) release_(block);
  }
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  void run() {
    for (const Replacement& replacement : work_) {
      void*& block = blocks_[replacement.place];
      release_(block);
      block = allocate_(replacement.bytes);
    }
  }

 private:
  const std::vector<Replacement>& work_;
  Allocate allocate_;
  Release release_;
  std::vector<void*> blocks_;
};

void mixed_sizes(benchmark::State& state) {
  const auto live = static_cast<std::size_t>(state.range(0));
  const std::vector<Replacement> work = replacements(live, kOperations);
  SimulatedDriver driver({.backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api()});
  const HostAllocator tcmalloc = tcmalloc_allocator();
  Heap ours(
      live, work, [&](std::size_t bytes) { return allocator.allocate(bytes); },
      [&](void* pointer) { allocator.deallocate(pointer); });
  std::vector<std::function<void()>> ways;
  ways.emplace_back([&] { ours.run(); });

  const auto measure = [&] {
    for (auto _ : state) {
      const std::vector<double> medians = interleaved_medians(ways, kOperations, kRounds);
      state.SetIterationTime(medians[0] * 1e-9);
      if (medians.size() == 1) continue;
      state.counters["tcmalloc_ns"] = medians[1];
      state.counters["over_tcmalloc"] = medians[0] / medians[1];
    }
  };
  if (tcmalloc) {
    Heap theirs(live, work, tcmalloc.allocate, tcmalloc.release);
    ways.emplace_back([&] { theirs.run(); });
    measure();
  } else {
    measure();
  }
}

BENCHMARK(mixed_sizes)->Arg(1000)->Arg(10000)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
