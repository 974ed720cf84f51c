#pragma once

// Events on a stream in the order of its queue, each with the number of the mark that it was recorded at: bytes that
// were free before a mark are to be had behind its event, however much was queued since.
//
// At most eight are kept whose work is not known to be done: of more the newest makes way, for the older one waits
// less. Complexity: O(marks). Not thread-safe: the heap's lock is held.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace cistern {

struct StreamEnd;

class StreamMarks {
 public:
  using Number = std::uint32_t;

  // Unless one is kept that is newer: another thread's, whose event was recorded first.
  void keep(Number number, std::shared_ptr<StreamEnd> event) noexcept {
    if (number <= done_ || (count_ != 0 && number < marks_[count_ - 1].number)) return;
    if (count_ == kMost) --count_;
    marks_[count_++] = {number, std::move(event)};
  }
  // What was queued before the mark is done.
  void done(Number number) noexcept {
    done_ = std::max(done_, number);
    const auto first = std::find_if(marks_.begin(), marks_.begin() + count(),
                                    [this](const Mark& mark) { return mark.number > done_; });
    std::fill(std::move(first, marks_.begin() + count(), marks_.begin()), marks_.begin() + count(), Mark{});
    count_ -= static_cast<std::size_t>(first - marks_.begin());
  }
  [[nodiscard]] bool is_done(Number number) const { return number <= done_; }
  // The first event at that mark or behind it; null: none is kept.
  struct Mark {
    Number number = 0;
    std::shared_ptr<StreamEnd> event;
  };
  [[nodiscard]] const Mark* behind(Number number) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (marks_[i].number >= number) return &marks_[i];
    return nullptr;
  }
  void forget() noexcept { *this = {}; }

 private:
  static constexpr std::size_t kMost = 8;

  [[nodiscard]] std::ptrdiff_t count() const { return static_cast<std::ptrdiff_t>(count_); }

  std::array<Mark, kMost> marks_;  // the oldest first
  std::size_t count_ = 0;
  Number done_ = 0;
};

}  // namespace cistern
