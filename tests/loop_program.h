#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace cistern {

// A program of loops in loops, in which a step frees what it allocated, now and then with something in between.
template <class Heap>
class LoopProgram {
 public:
  LoopProgram(Heap& heap, std::uint64_t seed) : heap_(heap), random_(seed) {}

  // `detours` of 1,000 steps are others than the round's.
  void run(int rounds, int depth, std::uint64_t detours) {
    round_seed_ = random_();
    run_again(rounds, depth, detours);
  }
  // The round that it ran last.
  void run_again(int rounds, int depth, std::uint64_t detours = 0) {
    for (int round = 0; round < rounds; ++round) {
      std::mt19937_64 of_round(round_seed_);
      repeat(of_round, depth, detours);
    }
  }

 private:
  using Address = decltype(std::declval<Heap&>().allocate(1));

  void repeat(std::mt19937_64& of_round, int depth, std::uint64_t detours) {
    std::vector<Address> blocks;
    const std::uint64_t count = 3 + of_round() % 12;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (random_() % 1000 < detours) detour();
      blocks.push_back(heap_.allocate(kUnit * (1 + of_round() % 40)));
      if (of_round() % 3 == 0) release(blocks, of_round());
      if (depth == 0 || of_round() % 3 != 0) continue;
      const std::uint64_t inner_seed = of_round();
      for (std::uint64_t times = 1 + of_round() % 6; times != 0; --times) {
        std::mt19937_64 inner(inner_seed);
        repeat(inner, depth - 1, detours);
      }
    }
    while (!blocks.empty()) release(blocks, of_round());
  }
  void release(std::vector<Address>& blocks, std::uint64_t which) {
    const auto chosen = blocks.begin() + static_cast<std::ptrdiff_t>(which % blocks.size());
    heap_.free(*chosen);
    blocks.erase(chosen);
  }
  void detour() {
    switch (random_() % 3) {
      case 0:
        return heap_.look(random_() % 2 == 0);
      case 1:
        return heap_.free(heap_.allocate(kUnit * (1 + random_() % 90)));
      default:
        kept_.push_back(heap_.allocate(kUnit * (1 + random_() % 90)));
    }
    if (kept_.size() > 3) release(kept_, random_());
  }

  static constexpr std::uint64_t kUnit = 500;
  Heap& heap_;
  std::mt19937_64 random_;
  std::uint64_t round_seed_ = 0;
  std::vector<Address> kept_;
};

}  // namespace cistern
