#include "allocator/block_pool.h"

#include <stdexcept>

namespace cistern {
namespace {

bool comes_before(const Block* a, const Block* b) {
  return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
}

// Parts the tree `node` into the blocks before and after `pivot`.
void split(Block* node, const Block* pivot, Block** before, Block** after) {
  while (node != nullptr) {
    if (comes_before(node, pivot)) {
      *before = node;
      before = &node->right;
      node = node->right;
    } else {
      *after = node;
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
      *place = low;
      place = &low->right;
      low = low->right;
    } else {
      *place = high;
      place = &high->left;
      high = high->left;
    }
  }
  *place = low != nullptr ? low : high;
}

void require(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

}  // namespace

Block* BlockPool::best_fit(std::size_t bytes) const {
  Block* best = nullptr;
  for (Block* node = root_; node != nullptr;) {
    if (node->bytes >= bytes) {
      best = node;
      node = node->left;
    } else {
      node = node->right;
    }
  }
  return best;
}

Block* BlockPool::after(const Block* block) const {
  Block* next = nullptr;
  for (Block* node = root_; node != nullptr;) {
    if (comes_before(block, node)) {
      next = node;
      node = node->left;
    } else {
      node = node->right;
    }
  }
  return next;
}

Block* BlockPool::largest() const {
  Block* node = root_;
  while (node != nullptr && node->right != nullptr) node = node->right;
  return node;
}

void BlockPool::insert(Block* block) {
  Block** place = &root_;
  while (*place != nullptr && (*place)->priority >= block->priority)
    place = comes_before(*place, block) ? &(*place)->right : &(*place)->left;
  Block* below = *place;
  *place = block;
  split(below, block, &block->left, &block->right);
  ++size_;
}

void BlockPool::erase(Block* block) {
  Block** place = &root_;
  while (*place != block) place = comes_before(*place, block) ? &(*place)->right : &(*place)->left;
  join(block->left, block->right, place);
  block->left = block->right = nullptr;
  --size_;
}

bool BlockPool::contains(const Block* block) const {
  const Block* node = root_;
  while (node != nullptr && node != block) node = comes_before(node, block) ? node->right : node->left;
  return node != nullptr;
}

void BlockPool::check() const {
  std::size_t count = 0;
  const Block* last = nullptr;
  for_each([&](const Block* block) {
    require(last == nullptr || comes_before(last, block), "block pool: blocks out of order");
    require(block->left == nullptr || block->left->priority <= block->priority, "block pool: priorities");
    require(block->right == nullptr || block->right->priority <= block->priority, "block pool: priorities");
    require(block->state == BlockState::inactive, "block pool: a block in use is in the pool");
    last = block;
    ++count;
  });
  require(count == size_, "block pool: count");
}

}  // namespace cistern
