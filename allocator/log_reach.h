#pragma once

// How many entries a log of places keeps: as many as it may, as long as what is far back in it is ever asked for.
//
// Steps that come again ask for entries that are a step old, so that all of a step has to be kept before the first is
// found. Where no request comes again nothing is, and a log that is larger than the processor's caches takes half of
// each request's time. So a full log that was replaced twice without an old entry being asked for keeps few, and what
// it keeps grows again after a pause, twice as long each time up to a limit. O(1). Not thread-safe.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

namespace cistern {

class LogReach {
 public:
  static constexpr std::size_t kFewest = 1024;

  // An entry was asked for before which so many newer ones lie.
  void asked_for(std::size_t age) noexcept { farthest_ = std::max(farthest_, age); }
  // So many are there, which is all that there is room for, and one more comes: how many there is to be room for, of at
  // most `most`. Fewer than are there: only the newest are kept.
  [[nodiscard]] std::size_t room(std::size_t full, std::size_t most) noexcept;

 private:
  static constexpr int kTurnsInVain = 2;
  static constexpr std::size_t kLongestPause = 8;

  std::size_t farthest_ = 0;    // in this turn
  std::size_t replaced_ = 0;    // entries, in this turn: it is over when all are
  std::size_t pause_ = 0;       // entries that come before more are kept
  std::size_t next_pause_ = 1;  // in logs as large as may be
  int in_vain_ = 0;             // turns of a log as large as may be
};

inline std::size_t LogReach::room(std::size_t full, std::size_t most) noexcept {
  const std::size_t more = std::min(std::max(kFewest, 2 * full), most);
  // A little more room is not worth that all are put elsewhere.
  if (pause_ == 0 && more > full + full / 8) return more;
  if (++replaced_ < full) return full;
  replaced_ = 0;
  const std::size_t far = std::exchange(farthest_, 0);
  if (far >= full / 2) {
    pause_ = 0;
    next_pause_ = 1;
    in_vain_ = 0;
    return more;
  }
  if (pause_ != 0) {
    pause_ -= std::min(pause_, full);
    return full;
  }
  if (++in_vain_ < kTurnsInVain) return full;
  in_vain_ = 0;
  pause_ = next_pause_ * most;
  next_pause_ = std::min(2 * next_pause_, kLongestPause);
  return std::min(full, std::max(kFewest, std::bit_ceil(4 * far)));
}

}  // namespace cistern
