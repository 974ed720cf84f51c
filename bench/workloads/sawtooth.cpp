// Adversarial: live memory rises and falls like a saw, and each tooth leaves survivors behind.
//
// The idea is that of the lower bounds of Robson, "An estimate of the store size necessary for
// dynamic storage allocation" (Journal of the ACM, 1971): fill memory with blocks of one size,
// free all but survivors spaced so that what lies between them cannot serve the next, larger
// size. Here each tooth rises to 8 GiB with blocks of one size, which grows by an eighth and a
// random 512-byte multiple from 1 MiB to 32 MiB and starts again; 12 % of the blocks, at random,
// survive the tooth and are freed two teeth later.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/workloads/generators.h"
#include "bench/workloads/random.h"
#include "bench/workloads/tensor.h"

namespace cistern {
namespace {

constexpr std::uint64_t kPeak = 8 * kGiB;
constexpr std::uint64_t kSmallest = 1 * kMiB, kLargest = 32 * kMiB;
constexpr unsigned kSurvivorsPercent = 12;
constexpr int kTeeth = 65;

class Saw {
 public:
  Saw(std::uint64_t seed, TraceSink& sink) : random_(seed), sink_(sink) {}

  void tooth() {
    std::vector<Tensor> blocks;
    while (live_ + size_ <= kPeak) {
      blocks.emplace_back(sink_, size_);
      live_ += size_;
    }
    free_all(older_survivors_);
    older_survivors_ = std::move(survivors_);
    survivors_.clear();
    // From the top down: the order in which coalescing helps least is the caller's own reverse.
    for (std::size_t i = blocks.size(); i-- > 0;) {
      if (random_.chance(kSurvivorsPercent)) {
        survivors_.push_back(std::move(blocks[i]));
      } else {
        live_ -= blocks[i].bytes();
        blocks[i].reset();
      }
    }
    size_ += size_ / 8 + 512 * random_.below(64);
    if (size_ > kLargest) size_ = kSmallest + 512 * random_.below(64);
    sink_.step();
  }

 private:
  void free_all(std::vector<Tensor>& blocks) {
    for (const Tensor& block : blocks) live_ -= block.bytes();
    blocks.clear();
  }

  Random random_;
  TraceSink& sink_;
  std::uint64_t size_ = kSmallest;
  std::uint64_t live_ = 0;
  std::vector<Tensor> survivors_, older_survivors_;
};

}  // namespace

void generate_sawtooth(std::uint64_t seed, TraceSink& sink) {
  sink.comment("cistern workload sawtooth, seed " + std::to_string(seed) + ": generated, Apache-2.0");
  sink.comment("teeth of 8 GiB in blocks of one size, an eighth larger each time, 1 MiB to 32 MiB");
  sink.comment("12 % of each tooth's blocks survive it and pin the holes (after Robson, JACM 1971)");
  Saw saw(seed, sink);
  for (int tooth = 0; tooth < kTeeth; ++tooth) saw.tooth();
}

}  // namespace cistern
