#pragma once

// Whether the streams that share paged memory are apart: each has others' bytes last, not before memory is created.
//
// Bytes of others save memory where streams come up to their peaks at different times, and what comes again then comes
// to rest. Streams whose steps vary, and that run side by side, have each other's bytes for ever: the one that lost
// some takes others in their place. They part where many requests of a round had bytes of others although memory hardly
// grew; and where what each had live at most, at its own time, would all fit in the memory that there is and a little
// more, so that nothing is saved, or little. From then on memory may be created up to an eighth beyond what was ever
// live, or that little. Streams of which many requests have others' bytes even so come together again, and part twice
// as late the next time. What was measured is in decision 33. Complexity: O(1). Not thread-safe: the heap's lock is
// held.

#include <algorithm>
#include <cstdint>

namespace cistern {

class StreamParting {
 public:
  // Of a round: requests that their streams' own known places do not serve, with the heap's lock.
  static constexpr std::int64_t kRequests = std::int64_t{1} << 12;
  // So many of these are many, while streams share, and while they are apart.
  static constexpr std::int64_t kMany = kRequests / 64;
  static constexpr std::int64_t kManyApart = kRequests / 32;

  // One more, which had bytes of others that go on, or not. True: it was the last of the round.
  [[nodiscard]] bool note(bool has_others) noexcept {
    had_others_ += has_others ? 1 : 0;
    return ++requests_ >= kRequests;
  }
  // The round is over: there are so many pages, and for what streams had live there would be `peaks` in all, each at
  // its own time; to have `little` more is worth it where streams have nothing of each other's. The next begins.
  void end_round(std::int64_t pages, std::int64_t peaks, std::int64_t little) noexcept {
    if (are_apart_)
      judge_parting();
    else if (may_part(pages, peaks, little) && --rounds_left_ == 0)
      part(pages);
    begin_round(pages);
  }
  [[nodiscard]] bool are_apart() const noexcept { return are_apart_; }
  // So many pages there may be before others' bytes are had, if so many were ever live. `little` as above. Requires:
  // they are apart.
  [[nodiscard]] std::int64_t most_pages(std::int64_t live, std::int64_t little) const noexcept {
    return std::max(pages_when_parted_, live + std::max(live / 8, little));
  }
  // Memory is shared anew, and comes anew.
  void come_together() noexcept { *this = StreamParting(); }

 private:
  [[nodiscard]] bool may_part(std::int64_t pages, std::int64_t peaks, std::int64_t little) const noexcept {
    return had_others_ >= kMany && pages <= pages_before_ + pages_before_ / 256 &&
           peaks <= pages + std::max(pages / 32, little);
  }
  void part(std::int64_t pages) noexcept {
    are_apart_ = true;
    pages_when_parted_ = pages;
  }
  void judge_parting() noexcept {
    if (had_others_ < kManyApart) return;
    are_apart_ = false;
    rounds_left_ = rounds_ = std::min(2 * rounds_, kMostRounds);
  }
  void begin_round(std::int64_t pages) noexcept {
    requests_ = had_others_ = 0;
    pages_before_ = pages;
  }

  static constexpr int kMostRounds = 1 << 10;

  std::int64_t requests_ = 0;
  std::int64_t had_others_ = 0;
  std::int64_t pages_before_ = 0;
  std::int64_t pages_when_parted_ = 0;
  bool are_apart_ = false;
  int rounds_ = 1;  // restless ones until they part
  int rounds_left_ = 1;
};

}  // namespace cistern
