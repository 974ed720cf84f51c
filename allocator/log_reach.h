#pragma once

// How many entries a log of places keeps, and of which states: as many as it may and of all, as long as what is far
// back in it is ever asked for.
//
// Steps that come again ask for entries that are a step old, so that all of a step has to be kept before the first is
// found. Where no request comes again nothing is, and a log that is larger than the processor's caches takes half of
// each request's time. So a log that is as large as may be keeps few as soon as it is full if hardly any entry was
// asked for, one in 64, and else when it was replaced twice without an old one being asked for. If what is asked for is
// somewhat old, what it keeps grows again after a pause, twice as long each time up to a limit. If nothing is, the few
// are a sample: of one state in eight until 8,192 entries came, then of one in 128 until 131,072 did, and so on in
// turn, until much of what comes is found. Short steps are found in the end since each turn is of other states; which
// these are their sums say: a state that comes again is of the sample again. What lies farther apart than that is for a
// pause's end: after a longer one all are kept once more. O(1). Not thread-safe.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cistern {

class LogReach {
 public:
  static constexpr std::size_t kFewest = 1024;

  // Whether entries of the state with this sum are kept and asked for.
  [[nodiscard]] bool is_kept(std::uint64_t sum) const noexcept { return ((sum + turn_) & sample_) == 0; }
  // An entry was asked for before which so many newer ones lie.
  void asked_for(std::size_t age) noexcept {
    ++asked_;
    farthest_ = std::max(farthest_, age * (sample_ + 1));
    if (sample_ != kAll && ++found_ == kFoundOfSteps) end_sample();
  }
  // An entry comes, of a state that is kept, or is not.
  void comes(bool is_kept) noexcept {
    if (sample_ == kAll) return;
    if (is_kept && ++others_ == kOthersOfSteps) found_ = others_ = farthest_ = 0;
    if (--pause_ == 0) return keep_all();
    if (++came_ < kFewest * (sample_ + 1)) return;
    came_ = 0;
    if (sample_ == kOneInMany) ++turn_;
    sample_ = sample_ == kOneInEight ? kOneInMany : kOneInEight;
  }
  // So many are there, which is all that there is room for, and one more comes: how many there is to be room for, of at
  // most `most`. Fewer than are there: only the newest are kept.
  [[nodiscard]] std::size_t room(std::size_t full, std::size_t most) noexcept;

 private:
  static constexpr int kTurnsInVain = 2;
  static constexpr std::size_t kLongestPause = 8;
  // A sample costs little, and finds most: it lasts so many times as long.
  static constexpr std::size_t kPausesOfSample = 8;
  // Of a sum, bits that are zero in what is kept.
  static constexpr std::uint64_t kAll = 0;
  static constexpr std::uint64_t kOneInEight = 7;
  static constexpr std::uint64_t kOneInMany = 127;
  // So many are found before so many others come where steps come again, and hardly elsewhere.
  static constexpr std::size_t kFoundOfSteps = 8;
  static constexpr std::size_t kOthersOfSteps = 32;
  // More than hardly any.
  static constexpr std::size_t kOneIsAskedForIn = 64;

  void keep_all() noexcept {
    sample_ = kAll;
    pause_ = 0;
    in_vain_ = 0;
    replaced_ = 0;
    is_filling_ = true;
    asked_ = 0;
  }
  // What was found tells how much has to be kept: if it is near, few entries of all states.
  void end_sample() noexcept {
    const bool is_near = farthest_ < kFewest / 2;
    keep_all();
    if (is_near)
      begin_pause(most_);
    else
      next_pause_ = 1;
  }
  void begin_pause(std::size_t most) noexcept {
    pause_ = next_pause_ * most;
    next_pause_ = std::min(2 * next_pause_, kLongestPause);
  }

  std::size_t farthest_ = 0;    // in this turn
  std::size_t replaced_ = 0;    // entries, in this turn: it is over when all are
  std::size_t pause_ = 0;       // entries that come before more are kept
  std::size_t next_pause_ = 1;  // in logs as large as may be
  int in_vain_ = 0;             // turns of a log as large as may be
  bool is_filling_ = true;      // since all are kept it was not as large as may be
  std::size_t asked_ = 0;       // for entries, so often since all are kept
  std::uint64_t sample_ = kAll;
  std::uint64_t turn_ = 0;  // of both samples
  std::size_t most_ = 0;    // that there might be, when it was begun
  std::size_t came_ = 0;    // since the sample was chosen
  std::size_t found_ = 0;   // of the sample, and others, since these were as many as there may be
  std::size_t others_ = 0;
};

inline std::size_t LogReach::room(std::size_t full, std::size_t most) noexcept {
  if (sample_ != kAll) return full;
  const std::size_t more = std::min(std::max(kFewest, 2 * full), most);
  // A little more room is not worth that all are put elsewhere.
  if (pause_ == 0 && more > full + full / 8) return more;
  const bool is_filled = std::exchange(is_filling_, false);
  const bool is_in_vain = is_filled && full > kFewest && asked_ < full / kOneIsAskedForIn;
  if (!is_in_vain && ++replaced_ < full) return full;
  replaced_ = 0;
  const std::size_t far = std::exchange(farthest_, 0);
  if (far >= full / 2) {
    keep_all();
    is_filling_ = false;
    next_pause_ = 1;
    return more;
  }
  if (pause_ != 0) {
    pause_ -= std::min(pause_, full);
    if (pause_ == 0) keep_all();
    return full;
  }
  if (!is_in_vain && ++in_vain_ < kTurnsInVain) return full;
  in_vain_ = 0;
  begin_pause(most);
  if (4 * far > kFewest || full <= kFewest) return std::min(full, std::max(kFewest, std::bit_ceil(4 * far)));
  pause_ *= kPausesOfSample;
  most_ = most;
  sample_ = kOneInEight;
  came_ = found_ = others_ = 0;
  return kFewest;
}

}  // namespace cistern
