#pragma once

// A heap full of different blocks: N are live; each replacement frees a random one and allocates
// a log-uniform size from 512 B to 20 MiB in its place. The same for every allocator.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace cistern {

struct Replacement {
  std::uint32_t place;
  std::size_t bytes;
};

// `uniform` is in [0, 1).
inline std::size_t log_uniform_size(double uniform, double least, double most) {
  return static_cast<std::size_t>(least * std::exp(uniform * std::log(most / least)));
}

// Of the generator's own bits: the standard's distributions differ between libraries.
inline double uniform_of(std::mt19937_64& random) { return static_cast<double>(random() >> 11) / 9007199254740992.0; }

inline std::vector<Replacement> replacements(std::size_t live, std::size_t count) {
  std::mt19937_64 random(41);
  std::vector<Replacement> all;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t bytes = log_uniform_size(uniform_of(random), 512, 20.0 * 1024 * 1024);
    all.push_back({static_cast<std::uint32_t>(random() % live), bytes});
  }
  return all;
}

// What one allocator keeps between rounds. Requires: `work` and `heap` outlive it.
template <class Heap>
class MixedSizes {
 public:
  MixedSizes(Heap& heap, std::size_t live, const std::vector<Replacement>& work)
      : heap_(heap), work_(work), blocks_(live) {
    for (std::size_t i = 0; i < live; ++i) blocks_[i] = heap_.allocate(work_[i % work_.size()].bytes);
  }
  ~MixedSizes() {
    for (void* block : blocks_) heap_.release(block);
  }
  MixedSizes(const MixedSizes&) = delete;
  MixedSizes& operator=(const MixedSizes&) = delete;

  void run() {
    for (const Replacement& replacement : work_) replace(replacement);
  }
  // The next `count` of them, round and round.
  void run_some(std::size_t count) {
    for (; count > 0; --count, ++next_) replace(work_[next_ % work_.size()]);
  }
  void replace(const Replacement& replacement) {
    void*& block = blocks_[replacement.place];
    heap_.release(block);
    block = heap_.allocate(replacement.bytes);
  }
  [[nodiscard]] void*& block(const Replacement& replacement) { return blocks_[replacement.place]; }
  [[nodiscard]] Heap& heap() { return heap_; }

 private:
  Heap& heap_;
  const std::vector<Replacement>& work_;
  std::vector<void*> blocks_;
  std::size_t next_ = 0;
};

}  // namespace cistern
