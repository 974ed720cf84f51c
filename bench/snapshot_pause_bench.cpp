// How long does a snapshot stop other threads? One thread allocates and frees all the time and notes the
// longest gap that it sees, while another takes snapshots of 100,000 blocks and a million entries. Beside it:
// the longest gap while the other thread does anything else for as long (what the machine itself does to a
// thread), and what a plain copy of as many bytes as the tables of blocks and segments have takes: like the heap's own
// they were not touched since the last snapshot was described, and go into memory that is there.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "allocator/block.h"
#include "bench/time_stamp.h"

namespace cistern {
namespace {

constexpr std::size_t kBlocks = 100000;
constexpr std::size_t kSegmentsOfTwo = 40000;
constexpr std::size_t kEntries = 1000000;
constexpr int kRepetitions = 41;

class Gaps {
 public:
  explicit Gaps(CachingAllocator& allocator) : thread_([this, &allocator] { run(allocator); }) {}
  ~Gaps() {
    ends_ = true;
    thread_.join();
  }
  // The longest since the last call, in ticks.
  std::uint64_t take() { return longest_.exchange(0); }

 private:
  void run(CachingAllocator& allocator) {
    for (std::uint64_t last = time_stamp(); !ends_.load(std::memory_order_relaxed);) {
      allocator.deallocate(allocator.allocate(512));
      const std::uint64_t now = time_stamp();
      if (now - last > longest_.load(std::memory_order_relaxed)) longest_ = now - last;
      last = now;
    }
  }

  std::atomic<bool> ends_{false};
  std::atomic<std::uint64_t> longest_{0};
  std::thread thread_;
};

struct Ticks {
  void note(benchmark::State& state, const std::string& name) {
    std::sort(all.begin(), all.end());
    const double us_per_tick = nanoseconds_a_tick() * 1e-3;
    state.counters[name + "_p50_us"] = static_cast<double>(all[all.size() / 2]) * us_per_tick;
    state.counters[name + "_max_us"] = static_cast<double>(all.back()) * us_per_tick;
  }
  std::vector<std::uint64_t> all;
};

// Makes `call` with a stack of its own for each number below 2^levels: what follows the two calls differs, so
// that they are two, and neither is in the place of its caller.
template <class Call>
[[gnu::noinline]] void at_place(unsigned levels, std::uint64_t number, Call&& call) {
  int place = 0;
  if (levels == 0) {
    call();
  } else if (number % 2 == 0) {
    at_place(levels - 1, number / 2, call);
    place = 1;
  } else {
    at_place(levels - 1, number / 2, call);
    benchmark::DoNotOptimize(place);
    place = 2;
  }
  benchmark::DoNotOptimize(place);
}

enum Heap : int { kWithoutStacks, kWithStacks, kOfManySegments };

// Segments of a live block and the free rest.
void fill_segments(CachingAllocator& allocator) {
  for (std::size_t i = 0; i < kSegmentsOfTwo; ++i) static_cast<void>(allocator.allocate(std::size_t{29} << 19));
}

// A heap with so many live blocks of mixed sizes, asked for at 4,096 places, and a ring that is full.
void fill(CachingAllocator& allocator) {
  constexpr unsigned kLevels = 12;
  std::vector<void*> live(kBlocks);
  std::uint64_t random = 1;
  const auto next = [&random] { return (random = random * 6364136223846793005ULL + 1442695040888963407ULL) >> 20; };
  const auto fill_one = [&](void*& block) {
    at_place(kLevels, next(), [&] { block = allocator.allocate(512 + next() % 8192); });
  };
  for (void*& block : live) fill_one(block);
  for (std::size_t recorded = kBlocks; recorded < kEntries + kBlocks; recorded += 3) {
    void*& block = live[next() % kBlocks];
    allocator.deallocate(block);
    fill_one(block);
  }
}

void snapshot_pause(benchmark::State& state) {
  const SimulatedDriver driver(SimulatedOptions{.capacity_bytes = std::size_t{1} << 40, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse("policy:classic")});
  HistoryOptions history;
  history.max_entries = kEntries;
  history.context = state.range(0) == kWithStacks ? HistoryContext::all : HistoryContext::none;
  allocator.record_history(history);
  state.range(0) == kOfManySegments ? fill_segments(allocator) : fill(allocator);
  Ticks pause;
  Ticks idle;
  Ticks copy;
  Ticks take;
  std::vector<char> table;
  std::vector<char> other;
  while (state.KeepRunning()) {
    Gaps gaps(allocator);
    std::size_t blocks = 0;
    std::size_t stacks = 0;
    for (int i = 0; i < kRepetitions; ++i) {
      static_cast<void>(gaps.take());
      const std::uint64_t start = time_stamp();
      Snapshot snapshot = allocator.snapshot();
      const std::uint64_t taken = time_stamp() - start;
      pause.all.push_back(gaps.take());
      take.all.push_back(taken);
      blocks = 0;
      for (const SegmentInfo& segment : snapshot.segments) blocks += segment.blocks.size();
      static_cast<void>(gaps.take());
      for (const std::uint64_t from = time_stamp(); time_stamp() - from < taken;) benchmark::DoNotOptimize(snapshot);
      idle.all.push_back(gaps.take());
      other.assign(blocks * sizeof(Block) + snapshot.segments.size() * sizeof(Segment), 1);
      if (table.size() == other.size()) {
        const std::uint64_t from = time_stamp();
        std::memcpy(other.data(), table.data(), table.size());
        copy.all.push_back(time_stamp() - from);
        benchmark::DoNotOptimize(other.data());
      }
      table.resize(other.size());
      stacks = snapshot.stacks.size();
    }
    state.counters["stacks"] = static_cast<double>(stacks);
    state.counters["blocks"] = static_cast<double>(blocks);
    state.counters["table_MB"] = static_cast<double>(table.size()) * 1e-6;
  }
  pause.note(state, "pause");
  idle.note(state, "idle");
  copy.note(state, "memcpy");
  take.note(state, "take");
  state.SetIterationTime(state.counters["pause_p50_us"] * 1e-6);
}

BENCHMARK(snapshot_pause)
    ->Arg(kWithoutStacks)
    ->Arg(kWithStacks)
    ->Arg(kOfManySegments)
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace cistern
