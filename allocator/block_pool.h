#pragma once

// The free blocks of one pool and stream: finds the smallest that holds a request, the
// lowest address among equals. A treap threaded through the blocks themselves: no host
// allocation, O(log n) expected for every operation.
// Invariant: every block here is free, and no block is here twice.
// Not thread-safe: the owning DeviceAllocator holds its lock around every call.

#include "allocator/block.h"

#include <cstddef>

namespace cistern {

class BlockPool {
 public:
  // The smallest block of at least `bytes`, lowest address first among equals; or nullptr.
  [[nodiscard]] Block* best_fit(std::size_t bytes) const;
  // The block that follows `block` by size and then address; nullptr if it is the last. O(log n).
  // Requires: `block` is in this pool.
  [[nodiscard]] Block* after(const Block* block) const;
  // The largest block, highest address among equals; nullptr when empty.
  [[nodiscard]] Block* largest() const;
  // Requires: `block` is in no pool.
  void insert(Block* block);
  // Requires: `block` is in this pool.
  void erase(Block* block);

  [[nodiscard]] bool contains(const Block* block) const;
  [[nodiscard]] bool empty() const { return root_ == nullptr; }
  [[nodiscard]] std::size_t size() const { return size_; }

  // Calls visit(Block*) for each block, by size and then address. `visit` must not change
  // the pool. O(n), in expected O(log n) stack.
  template <class Visit>
  void for_each(Visit&& visit) const {
    walk(root_, visit);
  }
  // Verifies order, heap order and count: throws std::logic_error. O(n).
  void check() const;

 private:
  template <class Visit>
  static void walk(Block* node, Visit& visit) {
    if (node == nullptr) return;
    walk(node->left, visit);
    visit(node);
    walk(node->right, visit);
  }

  Block* root_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace cistern
