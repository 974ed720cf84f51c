#pragma once

// SegmentList: segments that somebody has chosen, to give them back or to move them. Linked through
// the segments themselves: what is done when memory runs out takes none of the host's.
//
// Complexity: O(1), but for sort.
// Not thread-safe. Under the heap's lock a segment may be put into a list; what is in one while the
// lock is given up is marked `releasing`, and its link belongs to the list's owner.

#include "allocator/block.h"

#include <array>
#include <cstddef>
#include <utility>

namespace cistern {

class SegmentList {
 public:
  SegmentList() = default;
  explicit SegmentList(Segment* segment) { push_back(segment); }
  SegmentList(SegmentList&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)), last_(std::exchange(other.last_, nullptr)) {}
  SegmentList& operator=(SegmentList&& other) noexcept {
    first_ = std::exchange(other.first_, nullptr);
    last_ = std::exchange(other.last_, nullptr);
    return *this;
  }

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  // The first, from which Segment::next_chosen leads to the others.
  [[nodiscard]] Segment* first() const noexcept { return first_; }
  // Requires: the segment is in no list.
  void push_back(Segment* segment) noexcept {
    segment->next_chosen = nullptr;
    (first_ == nullptr ? first_ : last_->next_chosen) = segment;
    last_ = segment;
  }
  void push_front(Segment* segment) noexcept {
    segment->next_chosen = first_;
    if (first_ == nullptr) last_ = segment;
    first_ = segment;
  }
  // Takes the first out; nullptr if there is none.
  Segment* pop_front() noexcept {
    Segment* segment = first_;
    if (segment == nullptr) return nullptr;
    first_ = std::exchange(segment->next_chosen, nullptr);
    if (first_ == nullptr) last_ = nullptr;
    return segment;
  }
  // Stable; O(n log n) comparisons, without memory of its own. `before(const Segment&, const Segment&)`
  // is a strict weak order.
  template <class Before>
  void sort(Before&& before);

 private:
  template <class Before>
  [[nodiscard]] static Segment* merge(Segment* a, Segment* b, Before& before) noexcept;

  Segment* first_ = nullptr;
  Segment* last_ = nullptr;
};

// What is sorted already lies in runs of 2^i segments, each at place i, earlier ones at higher places:
// one more run carries, as in a binary counter.
template <class Before>
void SegmentList::sort(Before&& before) {
  std::array<Segment*, 64> runs{};
  while (Segment* run = pop_front()) {
    std::size_t place = 0;
    for (; runs[place] != nullptr; ++place) run = merge(std::exchange(runs[place], nullptr), run, before);
    runs[place] = run;
  }
  for (Segment* run : runs) first_ = merge(run, first_, before);
  for (Segment* segment = first_; segment != nullptr; segment = segment->next_chosen) last_ = segment;
}

// Of what is equal, that of `a` comes first.
template <class Before>
Segment* SegmentList::merge(Segment* a, Segment* b, Before& before) noexcept {
  Segment* all = nullptr;
  Segment** end = &all;
  while (a != nullptr && b != nullptr) {
    Segment*& first = before(*b, *a) ? b : a;
    *end = first;
    end = &first->next_chosen;
    first = first->next_chosen;
  }
  *end = a != nullptr ? a : b;
  return all;
}

}  // namespace cistern
