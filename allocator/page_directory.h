#pragma once

// PageDirectory: from a page's number to an object, read by any thread without a lock while one changes it.
//
// Pages that follow each other lie side by side, 512 to a leaf, so that what a program's frees look up stays in the
// processor's cache. Leaves stay. In front of the PublishedMap that has them all stands a table of 256, by the
// remainder of their number, of those that came last: pages of 2 MiB within 256 GiB are found without the map. An entry
// is one atomic pointer. Thread safety: find may be called from any thread at any time; the rest by one thread at a
// time. What is found may be gone from the directory already: it must be storage that stays, which says whose it is.

#include "allocator/published_map.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace cistern {

template <class Value, class Processors = HostProcessors>
class PageDirectory {
 public:
  PageDirectory() = default;
  PageDirectory(const PageDirectory&) = delete;
  PageDirectory& operator=(const PageDirectory&) = delete;

  // Null: there is none, or its leaf is just coming. O(1).
  [[nodiscard]] Value* find(std::uint64_t page) const noexcept {
    const Leaf* const leaf = leaf_of(page);
    return leaf == nullptr ? nullptr : leaf->values[page % kPagesOfLeaf].load(std::memory_order_acquire);
  }

  // The same, and null as well where the leaf is not one of those that came last. Without a loop.
  [[nodiscard, gnu::always_inline]] Value* find_recent(std::uint64_t page) const noexcept {
    const Leaf* const leaf = recent_leaf(page / kPagesOfLeaf);
    return leaf == nullptr ? nullptr : leaf->values[page % kPagesOfLeaf].load(std::memory_order_acquire);
  }

  // Room for the pages from `first` to `last`. Throws std::bad_alloc, with what there was as it was.
  // O(pages / 512), and once for each leaf O(512).
  void reserve(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t leaf = first / kPagesOfLeaf; leaf <= last / kPagesOfLeaf; ++leaf)
      if (leaf_of(leaf * kPagesOfLeaf) == nullptr) add_leaf(leaf);
  }
  // The value of a page that is new or known. Requires: reserved. O(1).
  void put(std::uint64_t page, Value* value) noexcept {
    leaf_of(page)->values[page % kPagesOfLeaf].store(value, std::memory_order_release);
  }
  // Nothing, if the page is not there. O(1).
  void erase(std::uint64_t page) noexcept {
    if (Leaf* const leaf = leaf_of(page)) leaf->values[page % kPagesOfLeaf].store(nullptr, std::memory_order_relaxed);
  }

 private:
  template <class T>
  using Atomic = typename Processors::template Atomic<T>;
  static constexpr std::uint64_t kPagesOfLeaf = 512;
  static constexpr std::uint64_t kLatest = 256;
  struct Leaf {
    explicit Leaf(std::uint64_t own_number) : number(own_number) {}
    const std::uint64_t number;
    std::array<Atomic<Value*>, kPagesOfLeaf> values{};
  };

  [[nodiscard]] Leaf* leaf_of(std::uint64_t page) const noexcept {
    const std::uint64_t number = page / kPagesOfLeaf;
    Leaf* const recent = recent_leaf(number);
    return recent != nullptr ? recent : by_number_.find(key_of(number));
  }
  [[nodiscard, gnu::always_inline]] Leaf* recent_leaf(std::uint64_t number) const noexcept {
    Leaf* const latest = latest_[number % kLatest].load(std::memory_order_acquire);
    return latest != nullptr && latest->number == number ? latest : nullptr;
  }
  // A key is not 0.
  [[nodiscard]] static std::uint64_t key_of(std::uint64_t number) noexcept { return number + 1; }
  void add_leaf(std::uint64_t number) {
    auto leaf = std::make_unique<Leaf>(number);
    by_number_.reserve(1);
    leaves_.push_back(std::move(leaf));
    by_number_.put(key_of(number), leaves_.back().get());
    latest_[number % kLatest].store(leaves_.back().get(), std::memory_order_release);
  }

  std::array<Atomic<Leaf*>, kLatest> latest_{};  // the one that came last with each remainder
  PublishedMap<Leaf, Processors> by_number_;
  std::vector<std::unique_ptr<Leaf>> leaves_;
};

}  // namespace cistern
