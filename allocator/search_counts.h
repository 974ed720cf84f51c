#pragma once

// SearchCounts: how often each pool was searched while garbage was collected. The age of a free segment is the searches
// of its pool since it became free (PyTorch's gc_count).
//
// Thread safety: any member may be called from any thread at any time, but for `count` of who is alone. O(1).

#include "stats/host_atomics.h"
#include "stats/recorder.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cistern {

template <class Processors>
class BasicSearchCounts {
 public:
  // `is_alone`: nobody else counts meanwhile.
  void count(PoolKind kind, bool is_alone) noexcept {
    Count& count = counts_[static_cast<std::size_t>(kind)];
    if (is_alone)
      count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    else
      count.fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t of(PoolKind kind) const noexcept {
    return counts_[static_cast<std::size_t>(kind)].load(std::memory_order_relaxed);
  }
  // Whether any were counted.
  [[nodiscard]] bool has_any() const noexcept { return of(PoolKind::small) + of(PoolKind::large) != 0; }

 private:
  using Count = typename Processors::template Atomic<std::uint64_t>;
  std::array<Count, 2> counts_{};  // by kind
};

using SearchCounts = BasicSearchCounts<HostAtomics>;

}  // namespace cistern
