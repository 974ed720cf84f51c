#pragma once

// FreeRanges: the free parts of an address space; hands out the lowest that fits.
//
// A treap in address order whose nodes know the largest range below them, so that first
// fit is logarithmic in the number of free ranges. Its shape depends on the calls alone.
// Not thread-safe.

#include <cstdint>
#include <optional>
#include <vector>

namespace cistern::simulated {

class FreeRanges {
 public:
  // Neighbouring free ranges are merged, but never across a multiple of `boundary` (a power
  // of two); 0: always merged.
  explicit FreeRanges(std::uint64_t boundary = 0) : boundary_(boundary) {}

  // Makes [begin, begin + bytes) free. Requires: no byte of it is free already; bytes > 0.
  // Throws std::bad_alloc, unchanged.
  void give_back(std::uint64_t begin, std::uint64_t bytes);
  // Takes the lowest place for `bytes` bytes at a multiple of `alignment` (a power of two).
  // Throws std::bad_alloc, unchanged.
  [[nodiscard]] std::optional<std::uint64_t> take_first_fit(std::uint64_t bytes, std::uint64_t alignment = 1);
  // Takes exactly this range; false, unchanged, if it is not wholly free.
  [[nodiscard]] bool take(std::uint64_t begin, std::uint64_t bytes);

  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size() - idle_.size() - 1; }

 private:
  using Index = std::uint32_t;  // of a node; 0 is none
  struct Node {
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
    std::uint64_t largest = 0;  // of the ranges in this subtree
    std::uint32_t priority = 0;
    Index left = 0;
    Index right = 0;
  };

  Index make_node(std::uint64_t begin, std::uint64_t bytes);
  void reserve_node();
  void update(Index node);
  Index merge(Index low, Index high);
  // Nodes that begin below `begin`, and the others.
  void split(Index node, std::uint64_t begin, Index* low, Index* high);
  void insert(std::uint64_t begin, std::uint64_t bytes);
  Index erase(Index node, std::uint64_t begin);
  void resize(Index node, std::uint64_t old_begin, std::uint64_t begin, std::uint64_t bytes);
  // The node with the greatest begin that is not above `address`.
  [[nodiscard]] Index find_at_or_below(std::uint64_t address) const;
  [[nodiscard]] Index find_at(std::uint64_t begin) const;
  [[nodiscard]] Index find_first_fit(Index node, std::uint64_t bytes, std::uint64_t alignment) const;
  void cut(Index node, std::uint64_t begin, std::uint64_t bytes);
  [[nodiscard]] bool may_merge_at(std::uint64_t address) const {
    return boundary_ == 0 || (address & (boundary_ - 1)) != 0;
  }

  std::uint64_t boundary_;
  std::vector<Node> nodes_{Node{}};
  std::vector<Index> idle_;
  Index root_ = 0;
  std::uint64_t random_ = 0x9e3779b97f4a7c15;
};

}  // namespace cistern::simulated
