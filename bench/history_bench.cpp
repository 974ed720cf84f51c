// What does the history cost? A warm allocate-and-free pair with it off, as it is by default, and
// with stacks of twenty frames by frame pointers, in turn in one run: the differences are its cost for
// one allocation and one free. And: what does a snapshot of a million entries and a hundred
// thousand blocks cost, taken and written?

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "bench/interleaved.h"

namespace cistern {
namespace {

constexpr std::size_t kPairs = 20000;
constexpr int kRounds = 31;
constexpr std::size_t kFrames = 20;

struct Heap {
  explicit Heap(const HistoryOptions& options) {
    allocator.record_history(options);
    allocator.deallocate(allocator.allocate(512));
  }
  SimulatedDriver driver{SimulatedOptions{.backing = Backing::none}};
  CachingAllocator allocator{{.driver = &driver.api(), .options = AllocatorOptions::parse("policy:classic")}};
};

void run_pairs(CachingAllocator& allocator) {
  for (std::size_t i = 0; i < kPairs; ++i) {
    void* pointer = allocator.allocate(512);
    benchmark::DoNotOptimize(pointer);
    allocator.deallocate(pointer);
  }
}

[[gnu::noinline]] void run_pairs_below(std::size_t frames, CachingAllocator& allocator) {
  if (frames == 0) {
    run_pairs(allocator);
  } else {
    run_pairs_below(frames - 1, allocator);
    asm volatile("");  // not a jump
  }
}

HistoryOptions options_of(HistoryEnabled enabled, HistoryContext context) {
  HistoryOptions options = HistoryOptions::always_on();
  options.enabled = enabled;
  options.context = context;
  options.max_frames = kFrames;
  return options;
}

void history_pair(benchmark::State& state) {
  Heap off(options_of(HistoryEnabled::none, HistoryContext::none));
  Heap on(options_of(HistoryEnabled::all, HistoryContext::none));
  Heap stacks(options_of(HistoryEnabled::all, HistoryContext::all));
  std::vector<std::function<void()>> ways;
  for (Heap* heap : {&off, &on, &stacks}) ways.emplace_back([heap] { run_pairs_below(kFrames, heap->allocator); });
  while (state.KeepRunning()) {
    std::vector<double> medians;
    // A thread's functions all keep frame pointers; those of the library that runs benchmarks do not.
    std::thread([&] { medians = interleaved_medians(ways, kPairs, kRounds); }).join();
    state.SetIterationTime(medians[1] * 1e-9);
    state.counters["off_ns"] = medians[0];
    state.counters["history_ns"] = medians[1] - medians[0];
    state.counters["with_stacks_ns"] = medians[2] - medians[0];
  }
  const HistoryInfo info = stacks.allocator.history_info();
  state.counters["gather_ns"] = info.ns_by_frame_pointers;
  state.counters["by_tables"] = static_cast<double>(info.by_unwind_tables);
}

template <class Work>
double milliseconds_of(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void snapshot_of_a_million(benchmark::State& state) {
  constexpr std::size_t kBlocks = 100000;
  constexpr std::size_t kEntries = 1000000;
  HistoryOptions options;
  options.max_entries = kEntries;
  Heap heap(options);
  std::vector<void*> live(kBlocks);
  std::uint64_t random = 1;
  for (std::size_t recorded = 0; recorded < kEntries + kBlocks;) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    void*& block = live[(random >> 33) % kBlocks];
    recorded += block == nullptr ? 1 : 3;
    if (block != nullptr) heap.allocator.deallocate(block);
    block = heap.allocator.allocate(512 + (random >> 20) % 8192);
  }
  for (void*& block : live)
    if (block == nullptr) block = heap.allocator.allocate(1000);
  const std::string path =
      (std::filesystem::temp_directory_path() / ("cistern-bench-" + std::to_string(::getpid()))).string();
  while (state.KeepRunning()) {
    Snapshot snapshot;
    state.counters["take_ms"] = milliseconds_of([&] { snapshot = heap.allocator.snapshot(); });
    state.counters["entries"] = static_cast<double>(snapshot.device_traces.at(0).size());
    state.counters["json_ms"] = milliseconds_of([&] { write_json(snapshot, path + ".json"); });
    const double gzip_ms = milliseconds_of([&] { write_json(snapshot, path + ".json.gz"); });
    state.counters["gzip_ms"] = gzip_ms;
    state.SetIterationTime(gzip_ms * 1e-3);
  }
  for (const char* ending : {".json", ".json.gz"}) {
    state.counters[std::string(ending) + "_MB"] = static_cast<double>(std::filesystem::file_size(path + ending)) * 1e-6;
    std::filesystem::remove(path + ending);
  }
}

BENCHMARK(history_pair)->Iterations(1)->UseManualTime();
BENCHMARK(snapshot_of_a_million)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace cistern
