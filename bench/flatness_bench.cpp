// Is a warm pair as cheap among a million free blocks as among none? In heaps of the same pool with N free blocks of
// other sizes, in turn. None of them is looked at: a free and the same request after it cancel each other (LazyFree).
// So beside it blocks of random sizes come and go there, a few at a time, in no order that comes again: each is
// searched for.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "bench/comparison.h"
#include "bench/hot_heap.h"
#include "bench/mixed_sizes.h"
#include "bench/pairs.h"

namespace cistern {
namespace {

constexpr std::size_t kBytes = 4096;
constexpr std::size_t kPairs = 5000;
constexpr int kRounds = 101;

std::int64_t free_blocks(HotHeap& heap) { return heap.allocator().memory_stats().inactive_split.all.current; }

// Takes the free blocks of exactly `bytes`: what is left would have to be split.
void take_exact_ones(HotHeap& heap, std::size_t bytes) {
  for (std::int64_t before = free_blocks(heap);; before = free_blocks(heap)) {
    void* block = heap.allocate(bytes);
    if (free_blocks(heap) < before) continue;  // it stays taken: the allocator gives it back at its end
    heap.release(block);
    return;
  }
}

// Log-uniform from 1 KiB to 1 MiB, PyTorch's pool of small blocks, each kept from merging with the next
// by a live block between them.
void scatter_free_blocks(HotHeap& heap, std::size_t count) {
  std::mt19937_64 random(41);
  std::vector<void*> blocks;
  blocks.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    blocks.push_back(heap.allocate(log_uniform_size(uniform_of(random), 1024, 1 << 20)));
    static_cast<void>(heap.allocate(512));
  }
  for (void* block : blocks) heap.release(block);
  take_exact_ones(heap, kBytes);
}

constexpr std::size_t kKi = 1024;
constexpr std::array<std::size_t, 4> kFreeBlocks = {0, kKi, 32 * kKi, kKi* kKi};

// A heap with so many free blocks for each of kFreeBlocks.
std::vector<std::unique_ptr<HotHeap>> heaps_of_free_blocks(Ring ring) {
  std::vector<std::unique_ptr<HotHeap>> heaps;
  for (const std::size_t count : kFreeBlocks) {
    HotHeap& heap = *heaps.emplace_back(std::make_unique<HotHeap>(ring));
    if (count != 0) scatter_free_blocks(heap, count);
  }
  return heaps;
}

std::string among(std::size_t count) { return "among_" + std::to_string(count) + "_ns"; }

void flat_pair(benchmark::State& state, Ring ring) {
  const auto heaps = heaps_of_free_blocks(ring);
  std::vector<NamedWay> ways;
  for (std::size_t i = 0; i < heaps.size(); ++i) {
    HotHeap& heap = *heaps[i];
    run_pairs(heap, kBytes, 1);
    ways.push_back({among(kFreeBlocks[i]), [&heap] { return time_pairs(heap, kBytes, kPairs); }});
    state.counters["free_" + std::to_string(kFreeBlocks[i])] = static_cast<double>(free_blocks(heap));
  }
  compare(state, kRounds, std::move(ways));
}

// Requests of the same pool.
std::vector<Replacement> small_replacements(std::size_t live) {
  std::vector<Replacement> work = replacements(live, (kRounds + 2) * kPairs);
  std::mt19937_64 random(43);
  for (Replacement& replacement : work) replacement.bytes = log_uniform_size(uniform_of(random), 1024, 1 << 20);
  return work;
}

void flat_search(benchmark::State& state, Ring ring) {
  constexpr std::size_t kLive = 16;
  const auto heaps = heaps_of_free_blocks(ring);
  const std::vector<Replacement> work = small_replacements(kLive);
  std::vector<std::unique_ptr<MixedSizes<HotHeap>>> searches;
  std::vector<NamedWay> ways;
  for (std::size_t i = 0; i < heaps.size(); ++i) {
    MixedSizes<HotHeap>& sizes = *searches.emplace_back(std::make_unique<MixedSizes<HotHeap>>(*heaps[i], kLive, work));
    ways.push_back({among(kFreeBlocks[i]), [&] { return nanoseconds_each(kPairs, [&] { sizes.run_some(kPairs); }); }});
  }
  compare(state, kRounds, std::move(ways));
}

BENCHMARK_CAPTURE(flat_pair, history_off, Ring::off)->Iterations(1)->UseManualTime();
BENCHMARK_CAPTURE(flat_pair, history_on, Ring::on)->Iterations(1)->UseManualTime();
BENCHMARK_CAPTURE(flat_search, history_off, Ring::off)->Iterations(1)->UseManualTime();
BENCHMARK_CAPTURE(flat_search, history_on, Ring::on)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
