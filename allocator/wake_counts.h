#pragma once

// WakeCounts: how many streams of a heap may be awake, and when it is looked which of them are idle.
//
// A stream that is awake serves without the heap's lock, and makes that lock dearer. Streams that take turns should
// all be awake, or, if they are more than may be, only a few: else each turn pays for many that have none.
// Not thread-safe. O(1).

#include "allocator/awake_streams.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cistern {

class WakeCounts {
 public:
  // So many stay awake although they do nothing, and no more may be where those in turn are too many.
  static constexpr std::size_t kFew = 8;
  // Requests with the heap's lock, for each that is awake, and as if one were where none is, after which it is looked.
  static constexpr std::size_t kRequestsEach = 32;

  // A stream asked with the heap's lock, while so many were awake. True: it is to be looked.
  [[nodiscard]] bool note_request(std::size_t awake) noexcept { return ++requests_ > requests_of_a_round(awake); }
  // Whether one more may wake.
  [[nodiscard]] bool has_room(std::size_t awake) const noexcept { return awake < most_; }
  // A stream finds no room; `refused_at` is kept with it. True: it is to be looked, for it is the first one of its
  // round. Where some find none in each round those that are awake would have had no time for a turn since the last
  // look.
  [[nodiscard]] bool refuse(std::uint64_t& refused_at) noexcept {
    if (std::exchange(refused_at, round_) == round_) return false;
    ++refused_;
    return refused_before_ == 0 && !std::exchange(was_looked_, true);
  }
  // A stream that may have found none wakes, or is over.
  void forget(std::uint64_t& refused_at) noexcept {
    if (std::exchange(refused_at, 0) == round_) --refused_;
  }
  // One wakes. True: it is to be looked first. Twice as many have come by then as there were: of those that take turns
  // few are left that had no turn meanwhile, and soon none.
  [[nodiscard]] bool note_wake() noexcept { return ++wakes_ >= std::max(2 * stayed_, kFew); }
  // It is looked, `awake` are, and `busy` of them not idle. Returns how many of these may stay awake.
  [[nodiscard]] std::size_t look(std::size_t awake, std::size_t busy) noexcept {
    if (requests_ > requests_of_a_round(awake)) {
      most_ = busy + refused_ > AwakeStreams::kMost ? kFew : AwakeStreams::kMost;
      refused_before_ = std::exchange(refused_, 0);
      was_looked_ = false;
      requests_ = 0;
      ++round_;
    }
    wakes_ = 0;
    stayed_ = std::min(busy, most_);
    return stayed_;
  }

 private:
  // Where only a few may be awake, as many as if all were that may be: long enough for the others to have turns.
  [[nodiscard]] std::size_t requests_of_a_round(std::size_t awake) const noexcept {
    return kRequestsEach * (most_ == kFew ? AwakeStreams::kMost : std::max<std::size_t>(awake, 1));
  }

  std::size_t most_ = AwakeStreams::kMost;
  std::size_t requests_ = 0;        // of a round
  std::size_t refused_ = 0;         // streams, in a round
  std::size_t refused_before_ = 0;  // in the one before
  bool was_looked_ = false;         // in a round, because one found no room
  std::uint64_t round_ = 1;
  std::size_t wakes_ = 0;  // since it was looked
  std::size_t stayed_ = 0;
};

}  // namespace cistern
