#pragma once

// LeftFrees: blocks in paged memory whose free is counted and told, and of which the placement is yet to hear.
//
// What is free in pages is all streams': where several serve, each free that told of it at once would take a turn
// there, and a thread that frees and asks two for each block. So frees are left to the stream's next turn, which a
// request takes anyway. Until then their bytes are nobody's; whoever has the heap's lock finds none. Complexity: O(1).
// Not thread-safe: guarded by the stream's lock.

#include <array>
#include <cassert>
#include <cstddef>

namespace cistern {

struct Block;

class LeftFrees {
 public:
  // A stream that only frees takes a turn for so many.
  static constexpr std::size_t kMost = 16;

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool is_full() const noexcept { return count_ == kMost; }
  // Requires: it is not full.
  void add(Block* block) noexcept {
    assert(!is_full());
    blocks_[count_++] = block;
  }
  // Calls visit(Block*) for each, in the order of their frees; then there are none.
  template <class Visit>
  void take(Visit&& visit) noexcept {
    for (std::size_t i = 0; i < count_; ++i) visit(blocks_[i]);
    count_ = 0;
  }

 private:
  std::size_t count_ = 0;
  std::array<Block*, kMost> blocks_{};
};

}  // namespace cistern
