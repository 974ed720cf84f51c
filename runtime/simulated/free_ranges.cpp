#include "runtime/simulated/free_ranges.h"

#include "runtime/simulated/granule.h"

#include <algorithm>

namespace cistern::simulated {

// After this the next make_node cannot fail: callers reserve before they change anything.
void FreeRanges::reserve_node() {
  if (!idle_.empty()) return;
  nodes_.emplace_back();
  try {
    idle_.reserve(nodes_.capacity());
  } catch (...) {
    nodes_.pop_back();
    throw;
  }
  idle_.push_back(static_cast<Index>(nodes_.size() - 1));
}

FreeRanges::Index FreeRanges::make_node(std::uint64_t begin, std::uint64_t bytes) {
  const Index node = idle_.back();
  idle_.pop_back();
  // xorshift64: any well-mixed sequence balances the tree; a fixed seed repeats it.
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  nodes_[node] = Node{begin, bytes, bytes, static_cast<std::uint32_t>(random_ >> 32), 0, 0};
  return node;
}

void FreeRanges::update(Index node) {
  Node& n = nodes_[node];
  n.largest = std::max({n.bytes, nodes_[n.left].largest, nodes_[n.right].largest});
}

FreeRanges::Index FreeRanges::merge(Index low, Index high) {
  if (low == 0) return high;
  if (high == 0) return low;
  if (nodes_[low].priority > nodes_[high].priority) {
    nodes_[low].right = merge(nodes_[low].right, high);
    update(low);
    return low;
  }
  nodes_[high].left = merge(low, nodes_[high].left);
  update(high);
  return high;
}

void FreeRanges::split(Index node, std::uint64_t begin, Index* low, Index* high) {
  if (node == 0) {
    *low = *high = 0;
    return;
  }
  if (nodes_[node].begin < begin) {
    split(nodes_[node].right, begin, &nodes_[node].right, high);
    *low = node;
  } else {
    split(nodes_[node].left, begin, low, &nodes_[node].left);
    *high = node;
  }
  update(node);
}

// Requires: reserve_node was called.
void FreeRanges::insert(std::uint64_t begin, std::uint64_t bytes) {
  Index low = 0;
  Index high = 0;
  split(root_, begin, &low, &high);
  root_ = merge(merge(low, make_node(begin, bytes)), high);
}

FreeRanges::Index FreeRanges::erase(Index node, std::uint64_t begin) {
  Node& n = nodes_[node];
  if (n.begin == begin) {
    idle_.push_back(node);
    return merge(n.left, n.right);
  }
  if (begin < n.begin) {
    n.left = erase(n.left, begin);
  } else {
    n.right = erase(n.right, begin);
  }
  update(node);
  return node;
}

// Changes the range that begins at `old_begin` in place: its rank among the others stays.
void FreeRanges::resize(Index node, std::uint64_t old_begin, std::uint64_t begin, std::uint64_t bytes) {
  Node& n = nodes_[node];
  if (n.begin == old_begin) {
    n.begin = begin;
    n.bytes = bytes;
  } else {
    resize(old_begin < n.begin ? n.left : n.right, old_begin, begin, bytes);
  }
  update(node);
}

FreeRanges::Index FreeRanges::find_at_or_below(std::uint64_t address) const {
  Index best = 0;
  for (Index node = root_; node != 0;) {
    if (nodes_[node].begin <= address) {
      best = node;
      node = nodes_[node].right;
    } else {
      node = nodes_[node].left;
    }
  }
  return best;
}

FreeRanges::Index FreeRanges::find_at(std::uint64_t begin) const {
  const Index node = find_at_or_below(begin);
  return node != 0 && nodes_[node].begin == begin ? node : 0;
}

FreeRanges::Index FreeRanges::find_first_fit(Index node, std::uint64_t bytes, std::uint64_t alignment) const {
  if (node == 0 || nodes_[node].largest < bytes) return 0;
  const Node& n = nodes_[node];
  if (const Index found = find_first_fit(n.left, bytes, alignment); found != 0) return found;
  const std::uint64_t padding = round_up(n.begin, alignment) - n.begin;
  if (padding <= n.bytes && n.bytes - padding >= bytes) return node;
  return find_first_fit(n.right, bytes, alignment);
}

// Removes [begin, begin + bytes) from the range of `node`, which holds it.
// Requires: reserve_node was called.
void FreeRanges::cut(Index node, std::uint64_t begin, std::uint64_t bytes) {
  const Node n = nodes_[node];
  const std::uint64_t head = begin - n.begin;
  const std::uint64_t tail = n.bytes - head - bytes;
  if (head == 0 && tail == 0) {
    root_ = erase(root_, n.begin);
  } else if (head == 0) {
    resize(root_, n.begin, begin + bytes, tail);
  } else {
    resize(root_, n.begin, n.begin, head);
    if (tail != 0) insert(begin + bytes, tail);
  }
}

void FreeRanges::give_back(std::uint64_t begin, std::uint64_t bytes) {
  reserve_node();
  const std::uint64_t end = begin + bytes;
  const Index below = find_at_or_below(begin);
  const Index above = may_merge_at(end) ? find_at(end) : 0;
  const bool joins_below = below != 0 && nodes_[below].begin + nodes_[below].bytes == begin && may_merge_at(begin);
  const std::uint64_t bytes_above = above != 0 ? nodes_[above].bytes : 0;
  if (joins_below) {
    const std::uint64_t begin_below = nodes_[below].begin;
    const std::uint64_t bytes_below = nodes_[below].bytes;
    if (above != 0) root_ = erase(root_, end);
    resize(root_, begin_below, begin_below, bytes_below + bytes + bytes_above);
  } else if (above != 0) {
    resize(root_, end, begin, bytes + bytes_above);
  } else {
    insert(begin, bytes);
  }
}

std::optional<std::uint64_t> FreeRanges::take_first_fit(std::uint64_t bytes, std::uint64_t alignment) {
  const Index node = find_first_fit(root_, bytes, alignment);
  if (node == 0) return std::nullopt;
  reserve_node();
  const std::uint64_t begin = round_up(nodes_[node].begin, alignment);
  cut(node, begin, bytes);
  return begin;
}

bool FreeRanges::take(std::uint64_t begin, std::uint64_t bytes) {
  const Index node = find_at_or_below(begin);
  if (node == 0 || nodes_[node].bytes < begin - nodes_[node].begin) return false;
  if (nodes_[node].bytes - (begin - nodes_[node].begin) < bytes) return false;
  reserve_node();
  cut(node, begin, bytes);
  return true;
}

}  // namespace cistern::simulated
