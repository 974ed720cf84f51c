// What do scopes, tags and budgets cost an allocation? The warm pair of warm_pair_bench.cpp, on the
// same allocator in turn: alone, under 1 and 10 open scopes, inside a TagScope, with one made for each
// pair, and under a budget. `over_alone` is the ratio that can be believed on a machine that drifts.

#include <cistern/allocator.h>
#include <cistern/scope.h>
#include <cistern/simulated.h>

#include <benchmark/benchmark.h>

#include <deque>
#include <functional>
#include <string>

#include "bench/interleaved.h"

namespace cistern {
namespace {

constexpr std::size_t kPairs = 20000;
constexpr int kRounds = 31;
constexpr std::size_t kBytes = 4096;

void run_pairs(CachingAllocator& allocator) {
  for (std::size_t i = 0; i < kPairs; ++i) {
    void* pointer = allocator.allocate(kBytes);
    benchmark::DoNotOptimize(pointer);
    allocator.deallocate(pointer);
  }
}

void run_pairs_in_scopes(CachingAllocator& allocator, int count) {
  std::deque<PeakScope> scopes;
  for (int i = 0; i < count; ++i) scopes.emplace_back(allocator);
  run_pairs(allocator);
}

void watched_pair(benchmark::State& state) {
  SimulatedDriver driver({.backing = Backing::none});
  CachingAllocator plain({.driver = &driver.api(), .options = AllocatorOptions::parse("policy:classic")});
  // A heap that has never seen a tag keeps no books by tag: the tagged ways have one of their own.
  CachingAllocator tagged({.driver = &driver.api(), .options = AllocatorOptions::parse("policy:classic")});
  const Tag tag("bench");
  const std::vector<std::pair<std::string, std::function<void()>>> ways = {
      {"alone", [&] { run_pairs(plain); }},
      {"scopes_1", [&] { run_pairs_in_scopes(plain, 1); }},
      {"scopes_10", [&] { run_pairs_in_scopes(plain, 10); }},
      {"in_tag",
       [&] {
         const TagScope scope(tag);
         run_pairs(tagged);
       }},
      {"untagged_beside_tags", [&] { run_pairs(tagged); }},
      {"tag_each",
       [&] {
         for (std::size_t i = 0; i < kPairs; ++i) {
           const TagScope scope("bench");
           void* pointer = tagged.allocate(kBytes);
           benchmark::DoNotOptimize(pointer);
           tagged.deallocate(pointer);
         }
       }},
      {"in_budget",
       [&] {
         BudgetOptions options;
         options.tag = "bench";
         options.hard_bytes = std::size_t{1} << 30;
         const Budget budget(tagged, options);
         const TagScope scope(tag);
         run_pairs(tagged);
       }},
  };
  std::vector<std::function<void()>> functions;
  functions.reserve(ways.size());
  for (const auto& way : ways) functions.push_back(way.second);
  while (state.KeepRunning()) {
    const std::vector<double> medians = interleaved_medians(functions, kPairs, kRounds);
    state.SetIterationTime(medians[0] * 1e-9);
    for (std::size_t i = 1; i < ways.size(); ++i) {
      state.counters[ways[i].first + "_ns"] = medians[i];
      state.counters[ways[i].first + "_over_alone"] = medians[i] / medians[0];
    }
  }
}

// What opening, reading and ending a scope costs, with others open.
void scope_itself(benchmark::State& state) {
  SimulatedDriver driver({.backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse("policy:classic")});
  std::deque<PeakScope> others;
  for (int i = 0; i < state.range(0); ++i) others.emplace_back(allocator);
  for (auto _ : state) {
    const PeakScope scope(allocator);
    benchmark::DoNotOptimize(scope.peak_bytes());
  }
}

BENCHMARK(watched_pair)->Iterations(1)->UseManualTime();
BENCHMARK(scope_itself)->Arg(0)->Arg(10)->Arg(1000);

}  // namespace
}  // namespace cistern
