#pragma once

// StepGrants: for how many steps the streams of a heap have room (Recurrence), all together no more than are worth it.
//
// Thread safety: any member may be called from any thread at any time. Of two that ask at once for what is left, both
// may be refused. O(1).

#include "stats/host_atomics.h"

#include <atomic>
#include <cstddef>

namespace cistern {

template <class Processors>
class BasicStepGrants {
 public:
  // What may be asked for by who has room for `own` steps, of `most` for all; the same may be told to others.
  [[nodiscard]] std::size_t left_beside(std::size_t own, std::size_t most) const noexcept {
    const std::size_t others = granted_.load(std::memory_order_relaxed) - own;
    return most > others ? most - others : 0;
  }
  // Whether there is room for so many more, of `most` for all; then it is given until it is taken back.
  [[nodiscard]] bool grant(std::size_t more, std::size_t most) noexcept {
    if (more == 0 || granted_.fetch_add(more, std::memory_order_relaxed) + more <= most) return true;
    take_back(more);
    return false;
  }
  void take_back(std::size_t steps) noexcept { granted_.fetch_sub(steps, std::memory_order_relaxed); }

 private:
  typename Processors::template Atomic<std::size_t> granted_{0};
};

using StepGrants = BasicStepGrants<HostAtomics>;

}  // namespace cistern
