#pragma once

// The free blocks of one pool and stream: finds the smallest that holds a request, the
// lowest address among equals.
//
// Sizes are parted into bins, finest where blocks of the pool's kind are, and a bit a bin tells which has blocks, so
// that the blocks of other sizes cost nothing. In a bin they are a treap threaded through the blocks themselves: no
// host allocation, O(log n) expected in the blocks of that bin to insert and to find; to erase, which looks for
// nothing, O(1) expected. The block that came last stays outside: what a program frees and asks for again in
// turn touches no tree.
// Invariant: every block here is free, and no block is here twice.
// Not thread-safe: guarded by its owner's lock: of a stream that is awake that stream's, else the heap's.

#include "allocator/block.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace cistern {

class BlockPool {
  static constexpr std::size_t kBins = 4096;

 public:
  // Which bins have trees, and where these begin: 33 KiB, of which most pools use little, so that they may lie in pages
  // that are not there until they are used.
  struct Trees {
    alignas(64) std::array<std::uint64_t, kBins / 64> has;  // a bit a bin
    std::array<Block*, kBins> roots;
  };
  // Requires: of the trees all bytes are 0, and they outlive the pool.
  BlockPool(PoolKind kind, Trees& trees) : bins_(kind == PoolKind::small ? kSmallBins : kLargeBins), trees_(trees) {}
  // Blocks point to where their tree begins.
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // The smallest block of at least `bytes`, lowest address first among equals; or nullptr.
  [[nodiscard]] Block* best_fit(std::size_t bytes) const {
    Block* best = fit_in_trees(bytes);
    const bool last_fits = last_ != nullptr && last_->bytes >= bytes;
    return last_fits && (best == nullptr || comes_before(last_, best)) ? last_ : best;
  }
  // The next block of the pool by size and address; nullptr behind the last.
  [[nodiscard]] Block* after(const Block* block) const;
  // The largest block, highest address among equals; nullptr when empty.
  [[nodiscard]] Block* largest() const;
  // Requires: `block` is in no pool.
  void insert(Block* block) {
    if (last_ != nullptr) insert_in_tree(last_);
    last_ = block;
    ++size_;
  }
  // Requires: `block` is in this pool.
  void erase(Block* block) {
    if (block == last_)
      last_ = nullptr;
    else
      erase_from_tree(block);
    --size_;
  }
  // A block of this pool that is about to get another size or address: it stays, and no tree knows it
  // until the next one comes.
  [[nodiscard]] bool is_loose(const Block* block) const { return block == last_; }
  void loosen(Block* block) {
    if (block == last_) return;
    erase_from_tree(block);
    if (last_ != nullptr) insert_in_tree(last_);
    last_ = block;
  }

  [[nodiscard]] bool contains(const Block* block) const;
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }

  // Calls visit(Block*) for each block, by size and then address. `visit` must not change
  // the pool. O(n), in expected O(log n) stack.
  template <class Visit>
  void for_each(Visit&& visit) const {
    bool visits_last = last_ != nullptr;
    const auto visit_in_order = [&](Block* block) {
      if (visits_last && comes_before(last_, block)) {
        visits_last = false;
        visit(last_);
      }
      visit(block);
    };
    for (std::size_t bin = first_bin(); bin != kNoBin; bin = next_bin(bin + 1)) walk(trees_.roots[bin], visit_in_order);
    if (visits_last) visit(last_);
  }
  // Verifies order, heap order, bins and count: throws std::logic_error. O(n).
  void check() const;

 private:
  // Sizes in units of 2^unit_bits bytes: each has a bin up to 2^(parts_bits + 1) units, from there as many as
  // 2^parts_bits are between a power of two and the next. What is larger than all of them is in the last.
  struct Bins {
    unsigned unit_bits;
    unsigned parts_bits;
  };
  static constexpr Bins kSmallBins{9, 10};  // every size to 1 MiB, then 1 KiB wide, to 2 MiB
  static constexpr Bins kLargeBins{12, 8};  // 4 KiB wide to 2 MiB, then 256 a power, to 32 GiB
  static constexpr std::size_t kNoBin = kBins;

  [[nodiscard]] std::size_t bin_of(std::size_t bytes) const {
    const std::size_t units = bytes >> bins_.unit_bits;
    const auto bits = static_cast<unsigned>(std::bit_width(units | (std::size_t{1} << bins_.parts_bits)));
    const unsigned octave = bits - 1 - bins_.parts_bits;
    return std::min((std::size_t{octave} << bins_.parts_bits) + (units >> octave), kBins - 1);
  }
  // Size and address as one number: comparing two of them takes no jump, which nothing could foresee.
  __extension__ using Rank = unsigned __int128;
  [[nodiscard]] static Rank rank_of(const Block& block) { return Rank{block.bytes} << 64 | block.address; }
  [[nodiscard]] static bool comes_before(const Block* a, const Block* b) { return rank_of(*a) < rank_of(*b); }
  [[nodiscard]] bool is_root(Block* const* place) const {
    return !std::less<>()(place, trees_.roots.data()) && std::less<>()(place, trees_.roots.data() + kBins);
  }
  [[nodiscard]] std::size_t first_bin() const { return has_word_ == 0 ? kNoBin : next_bin(0); }
  // The first bin with a tree from `bin` on, or kNoBin.
  [[nodiscard]] std::size_t next_bin(std::size_t bin) const;
  [[nodiscard]] Block* lowest_of(std::size_t bin) const;
  [[nodiscard]] Block* fit_in_trees(std::size_t bytes) const;
  [[nodiscard]] Block* fit_in_bin(std::size_t bin, std::size_t bytes) const;
  [[gnu::noinline]] void insert_in_tree(Block* block);
  [[gnu::noinline]] void erase_from_tree(Block* block);

  template <class Visit>
  static void walk(Block* node, Visit& visit) {
    if (node == nullptr) return;
    walk(node->left, visit);
    visit(node);
    walk(node->right, visit);
  }

  const Bins bins_;
  Trees& trees_;
  std::uint64_t has_word_ = 0;  // a bit for each word of trees_.has that is not 0
  Block* last_ = nullptr;       // in no tree
  std::size_t size_ = 0;
  // The first block of one tree, which a walk has found; kNoBin: none is known.
  mutable std::size_t known_bin_ = kNoBin;
  mutable Block* known_lowest_ = nullptr;
};

}  // namespace cistern
