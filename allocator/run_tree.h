#pragma once

// RunTree: free runs in an order, as a tree that is threaded through their nodes.
//
// A treap: a search tree by the order, and by the nodes' priorities a heap, so that it is as deep as if runs had come
// in a random order. Who knows a run takes it out without a search. The indexes have many such trees, most of a run or
// two. Complexity: O(log n) expected to insert and to find; to erase and to walk on O(1) expected. Takes no host
// memory. Not thread-safe.

#include "allocator/run_nodes.h"

namespace cistern {

// kComesBefore(const RunNode&, const RunNode&): of two runs that are not equal in the order.
template <RunLinks RunNode::*kLinks, auto kComesBefore>
struct RunTree {
  // Requires: it is in no such tree.
  static void insert(RunNodes& nodes, RunNumber& root, RunNumber number) noexcept {
    const RunNode& comes = nodes[number];
    RunNumber* place = &root;
    RunNumber parent = kNoRun;
    while (*place != kNoRun && nodes[*place].priority >= comes.priority) {
      parent = *place;
      RunLinks& links = nodes[parent].*kLinks;
      place = kComesBefore(nodes[parent], comes) ? &links.upper : &links.lower;
    }
    const RunNumber below = *place;
    put(nodes, number, parent, place);
    part(nodes, below, number);
  }
  // Requires: it is in the tree of this root.
  static void erase(RunNodes& nodes, RunNumber& root, RunNumber number) noexcept {
    const RunLinks gone = nodes[number].*kLinks;
    RunNumber* place = &root;
    if (gone.parent != kNoRun) {
      RunLinks& links = nodes[gone.parent].*kLinks;
      place = links.lower == number ? &links.lower : &links.upper;
    }
    join(nodes, gone.lower, gone.upper, gone.parent, place);
  }

  // Requires: the tree has one.
  [[nodiscard]] static RunNumber first(const RunNodes& nodes, RunNumber root) noexcept {
    while ((nodes[root].*kLinks).lower != kNoRun) root = (nodes[root].*kLinks).lower;
    return root;
  }
  [[nodiscard]] static RunNumber last(const RunNodes& nodes, RunNumber root) noexcept {
    while ((nodes[root].*kLinks).upper != kNoRun) root = (nodes[root].*kLinks).upper;
    return root;
  }
  // The first run of which is_before(const RunNode&) is not true, and the last of which it is; none if there is none.
  // Requires: it is true of none behind one of which it is not.
  template <class IsBefore>
  [[nodiscard]] static RunNumber first_behind(const RunNodes& nodes, RunNumber root, IsBefore&& is_before) noexcept {
    RunNumber found = kNoRun;
    while (root != kNoRun) {
      const bool goes_up = is_before(nodes[root]);
      found = goes_up ? found : root;
      root = goes_up ? (nodes[root].*kLinks).upper : (nodes[root].*kLinks).lower;
    }
    return found;
  }
  template <class IsBefore>
  [[nodiscard]] static RunNumber last_before(const RunNodes& nodes, RunNumber root, IsBefore&& is_before) noexcept {
    RunNumber found = kNoRun;
    while (root != kNoRun) {
      const bool goes_up = is_before(nodes[root]);
      found = goes_up ? root : found;
      root = goes_up ? (nodes[root].*kLinks).upper : (nodes[root].*kLinks).lower;
    }
    return found;
  }
  // The next one in the tree; none behind the last.
  [[nodiscard]] static RunNumber next(const RunNodes& nodes, RunNumber number) noexcept {
    const RunLinks& links = nodes[number].*kLinks;
    if (links.upper != kNoRun) return first(nodes, links.upper);
    RunNumber parent = links.parent;
    for (; parent != kNoRun && (nodes[parent].*kLinks).upper == number; parent = (nodes[parent].*kLinks).parent)
      number = parent;
    return parent;
  }
  [[nodiscard]] static bool is_alone(const RunNode& node) noexcept {
    const RunLinks& links = node.*kLinks;
    return links.parent == kNoRun && links.lower == kNoRun && links.upper == kNoRun;
  }

  // Whether links, order and priorities are as they should be. O(n), in O(depth) stack.
  [[nodiscard]] static bool is_sound(const RunNodes& nodes, RunNumber root, RunNumber parent = kNoRun) {
    if (root == kNoRun) return true;
    const RunNode& node = nodes[root];
    const RunLinks& links = node.*kLinks;
    const bool is_below = parent == kNoRun || nodes[parent].priority >= node.priority;
    const bool follows = links.lower == kNoRun || kComesBefore(nodes[last(nodes, links.lower)], node);
    const bool leads = links.upper == kNoRun || kComesBefore(node, nodes[first(nodes, links.upper)]);
    return links.parent == parent && is_below && follows && leads && is_sound(nodes, links.lower, root) &&
           is_sound(nodes, links.upper, root);
  }

 private:
  static void put(RunNodes& nodes, RunNumber number, RunNumber parent, RunNumber* place) noexcept {
    *place = number;
    (nodes[number].*kLinks).parent = parent;
  }
  // Puts what comes before the run, and what comes behind it, below it.
  static void part(RunNodes& nodes, RunNumber below, RunNumber number) noexcept {
    const RunNode& pivot = nodes[number];
    RunLinks& links = nodes[number].*kLinks;
    RunNumber* lower = &links.lower;
    RunNumber* upper = &links.upper;
    RunNumber above_lower = number;
    RunNumber above_upper = number;
    while (below != kNoRun) {
      RunLinks& its = nodes[below].*kLinks;
      if (kComesBefore(nodes[below], pivot)) {
        put(nodes, below, above_lower, lower);
        above_lower = below;
        lower = &its.upper;
        below = its.upper;
      } else {
        put(nodes, below, above_upper, upper);
        above_upper = below;
        upper = &its.lower;
        below = its.lower;
      }
    }
    *lower = *upper = kNoRun;
  }
  // Two trees, all of `low` before all of `high`, become one.
  static void join(RunNodes& nodes, RunNumber low, RunNumber high, RunNumber parent, RunNumber* place) noexcept {
    while (low != kNoRun && high != kNoRun) {
      if (nodes[low].priority >= nodes[high].priority) {
        put(nodes, low, parent, place);
        parent = low;
        place = &(nodes[low].*kLinks).upper;
        low = *place;
      } else {
        put(nodes, high, parent, place);
        parent = high;
        place = &(nodes[high].*kLinks).lower;
        high = *place;
      }
    }
    const RunNumber rest = low != kNoRun ? low : high;
    *place = rest;
    if (rest != kNoRun) (nodes[rest].*kLinks).parent = parent;
  }
};

}  // namespace cistern
