#pragma once

// The smallest work that hits the cache: allocate a size, free it, again and again.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>

#include "bench/interleaved.h"

namespace cistern {

template <class Heap>
void run_pairs(Heap&& heap, std::size_t bytes, std::size_t pairs) {
  for (std::size_t i = 0; i < pairs; ++i) {
    void* pointer = heap.allocate(bytes);
    benchmark::DoNotOptimize(pointer);
    heap.release(pointer);
  }
}

// Nanoseconds a pair.
template <class Heap>
double time_pairs(Heap&& heap, std::size_t bytes, std::size_t pairs) {
  return nanoseconds_each(pairs, [&] { run_pairs(heap, bytes, pairs); });
}

// As many pairs as take some two milliseconds, but no more than `most`: some peers ask the system
// for each large block.
template <class Heap>
std::size_t pairs_for_a_round(Heap&& heap, std::size_t bytes, std::size_t most) {
  run_pairs(heap, bytes, 10);
  constexpr double kRoundNs = 2e6;
  return std::clamp(static_cast<std::size_t>(kRoundNs / time_pairs(heap, bytes, 20)), std::size_t{20}, most);
}

}  // namespace cistern
