#pragma once

// The workloads' source of random numbers: the standard library's distributions differ
// between its implementations, and a trace must be the same everywhere.

#include <cstdint>

namespace cistern {

// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, count). Requires: count > 0. The ranges here are so small that the bias is nothing.
  std::uint64_t below(std::uint64_t count) { return next() % count; }
  // In [first, last].
  std::uint64_t between(std::uint64_t first, std::uint64_t last) { return first + below(last - first + 1); }
  bool chance(unsigned percent) { return below(100) < percent; }

 private:
  std::uint64_t state_;
};

}  // namespace cistern
