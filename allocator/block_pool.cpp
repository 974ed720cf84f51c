#include "allocator/block_pool.h"

#include "stats/invariant.h"

namespace cistern {
namespace {

void put(Block* node, Block** place) {
  *place = node;
  node->place = place;
}

// Parts the tree `node` into the blocks before and after `pivot`.
template <class Before>
void split(Block* node, const Block* pivot, Block** before, Block** after, const Before& comes_before) {
  while (node != nullptr) {
    if (comes_before(node, pivot)) {
      put(node, before);
      before = &node->right;
      node = node->right;
    } else {
      put(node, after);
      after = &node->left;
      node = node->left;
    }
  }
  *before = nullptr;
  *after = nullptr;
}

// Joins two trees, all of `low` before all of `high`, at `*place`.
void join(Block* low, Block* high, Block** place) {
  while (low != nullptr && high != nullptr) {
    if (low->priority > high->priority) {
      put(low, place);
      place = &low->right;
      low = low->right;
    } else {
      put(high, place);
      place = &high->left;
      high = high->left;
    }
  }
  Block* const rest = low != nullptr ? low : high;
  *place = rest;
  if (rest != nullptr) rest->place = place;
}

}  // namespace

std::size_t BlockPool::next_bin(std::size_t bin) const {
  if (bin >= kBins) return kNoBin;
  std::size_t word = bin / 64;
  std::uint64_t bits = trees_.has[word] >> (bin % 64) << (bin % 64);
  if (bits == 0) {
    const std::uint64_t words = has_word_ >> word >> 1 << word << 1;
    if (words == 0) return kNoBin;
    word = static_cast<std::size_t>(std::countr_zero(words));
    bits = trees_.has[word];
  }
  return word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
}

// Requires: the bin has a tree.
Block* BlockPool::lowest_of(std::size_t bin) const {
  if (known_bin_ == bin) return known_lowest_;
  Block* node = trees_.roots[bin];
  while (node->left != nullptr) node = node->left;
  known_bin_ = bin;
  return known_lowest_ = node;
}

Block* BlockPool::fit_in_trees(std::size_t bytes) const {
  if (has_word_ == 0) return nullptr;
  const std::size_t own = bin_of(bytes);
  const std::size_t bin = next_bin(own);
  if (bin == kNoBin) return nullptr;
  if (bin != own) return lowest_of(bin);
  if (Block* best = fit_in_bin(bin, bytes)) return best;
  const std::size_t larger = next_bin(bin + 1);
  return larger == kNoBin ? nullptr : lowest_of(larger);
}

// Requires: the bin has a tree. Each step takes what fits without asking: which way it goes cannot be foreseen.
Block* BlockPool::fit_in_bin(std::size_t bin, std::size_t bytes) const {
  if (bin == known_bin_ && known_lowest_->bytes >= bytes) return known_lowest_;
  Block* best = nullptr;
  for (Block* node = trees_.roots[bin]; node != nullptr;) {
    const bool fits = node->bytes >= bytes;
    best = fits ? node : best;
    node = fits ? node->left : node->right;
  }
  return best;
}

Block* BlockPool::after(const Block* block) const {
  Block* next = nullptr;
  const std::size_t bin = bin_of(block->bytes);
  for (Block* node = trees_.roots[bin]; node != nullptr;) {
    if (comes_before(block, node)) {
      next = node;
      node = node->left;
    } else {
      node = node->right;
    }
  }
  if (next == nullptr) {
    const std::size_t larger = next_bin(bin + 1);
    if (larger != kNoBin) next = lowest_of(larger);
  }
  const bool last_follows = last_ != nullptr && comes_before(block, last_);
  return last_follows && (next == nullptr || comes_before(last_, next)) ? last_ : next;
}

Block* BlockPool::largest() const {
  Block* node = nullptr;
  if (has_word_ != 0) {
    const auto word = static_cast<std::size_t>(std::bit_width(has_word_)) - 1;
    node = trees_.roots[word * 64 + static_cast<std::size_t>(std::bit_width(trees_.has[word])) - 1];
  }
  while (node != nullptr && node->right != nullptr) node = node->right;
  return last_ != nullptr && (node == nullptr || comes_before(node, last_)) ? last_ : node;
}

void BlockPool::insert_in_tree(Block* block) {
  const std::size_t bin = bin_of(block->bytes);
  Block** place = &trees_.roots[bin];
  const std::uint64_t bit = std::uint64_t{1} << (bin % 64);
  if ((trees_.has[bin / 64] & bit) == 0) {  // not by its root, whose page may not be there
    trees_.has[bin / 64] |= bit;
    has_word_ |= std::uint64_t{1} << (bin / 64);
    block->left = block->right = nullptr;
    put(block, place);
    return;
  }
  if (bin == known_bin_ && comes_before(block, known_lowest_)) known_lowest_ = block;
  while (*place != nullptr && (*place)->priority >= block->priority)
    place = comes_before(*place, block) ? &(*place)->right : &(*place)->left;
  Block* const below = *place;
  put(block, place);
  split(below, block, &block->left, &block->right, comes_before);
}

void BlockPool::erase_from_tree(Block* block) {
  if (block == known_lowest_) known_bin_ = kNoBin;
  Block** const place = block->place;
  join(block->left, block->right, place);
  block->left = block->right = nullptr;
  if (*place != nullptr || !is_root(place)) return;
  const auto bin = static_cast<std::size_t>(place - trees_.roots.data());
  trees_.has[bin / 64] &= ~(std::uint64_t{1} << (bin % 64));
  if (trees_.has[bin / 64] == 0) has_word_ &= ~(std::uint64_t{1} << (bin / 64));
}

bool BlockPool::contains(const Block* block) const {
  if (block == last_) return true;
  const Block* node = trees_.roots[bin_of(block->bytes)];
  while (node != nullptr && node != block) node = comes_before(node, block) ? node->right : node->left;
  return node != nullptr;
}

void BlockPool::check() const {
  std::size_t count = 0;
  const Block* previous = nullptr;
  for_each([&](const Block* block) {
    require(previous == nullptr || comes_before(previous, block), "block pool: blocks out of order");
    require(block->left == nullptr || block->left->priority <= block->priority, "block pool: priorities");
    require(block->right == nullptr || block->right->priority <= block->priority, "block pool: priorities");
    require(block->state == BlockState::inactive, "block pool: a block in use is in the pool");
    previous = block;
    ++count;
  });
  require(count == size_, "block pool: count");
  for (std::size_t word = 0; word < trees_.has.size(); ++word) {
    const bool has_bit = (has_word_ >> word & 1) != 0;
    require((trees_.has[word] != 0) == has_bit, "block pool: which words have bins");
    Block* const* const roots = &trees_.roots[word * 64];
    if (!has_bit) {  // most are so: without a jump for each
      std::uintptr_t any = 0;
      for (std::size_t bit = 0; bit < 64; ++bit) any |= reinterpret_cast<std::uintptr_t>(roots[bit]);
      require(any == 0, "block pool: which bins have blocks");
      continue;
    }
    for (std::size_t bit = 0; bit < 64; ++bit) {
      require((roots[bit] != nullptr) == ((trees_.has[word] >> bit & 1) != 0), "block pool: which bins have blocks");
      const auto check_bin = [&](const Block* block) {
        require(bin_of(block->bytes) == word * 64 + bit, "block pool: bin");
        require(*block->place == block, "block pool: what points to a block");
      };
      walk(roots[bit], check_bin);
    }
  }
  if (known_bin_ == kNoBin) return;
  const Block* lowest = trees_.roots[known_bin_];
  while (lowest != nullptr && lowest->left != nullptr) lowest = lowest->left;
  require(lowest == known_lowest_, "block pool: the first of a bin");
}

}  // namespace cistern
