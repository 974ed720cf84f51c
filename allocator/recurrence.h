#pragma once

// Recurrence: whether a stream does step by step what it did before, and what that was.
//
// Programs that work in steps hand out and take back the same blocks in the same order, step after step. A stream's
// heap is what its segments are, and its blocks that are in use or wait for other streams, where nothing but hits,
// uses and frees happens: so once a stream is back in a state where it was, and goes on as it went on then, what comes
// is known. It is followed then: a request that is the
// expected one gets the block that it got before, and nothing else is done, nor is it for the expected free, until
// something else happens. Then what is pending is carried out, less than one round of it, for whole rounds lead back to
// where they began.
//
// A rough sum over the blocks that came and went tells that the stream may be back in a state. Two states are looked
// for, each replaced by a later one now and then, which is looked for longer, for the first ones need not come again
// (after Brent's search for cycles). When the nearer one comes again, the steps from there on are written down
// (StepLog). Once the stream is where it was before, by a sum that is not rough, and came there as it did then, what
// came from there on up to now is expected, again and again, and followed. This sum has 64 bits: that two sets of
// blocks look alike is not to be expected in the life of any machine, and that they do and go on alike even less. The
// farther one is looked for whatever else is found meanwhile, such as short rounds within a long one: when it comes
// again, room for as many steps is wanted.
//
// A detour from a round is not its end: what is expected goes on where the state is again the one in which the round
// was left, or where steps of the round that lead nowhere were left out. Where the last steps, as many as a round has,
// came before as they came now, what followed them then is expected in place of the round: that was part of a longer
// one.
//
// What happens on the stream beside these steps, and whatever changes under the heap's lock, is told by `cut`:
// what was known is forgotten. So all of a round was done by steps alone, which had room for it (in the map of live
// blocks, in spare blocks, below the peaks), and that room is as it was until somebody has cut: what is pending is
// carried out before. Room below the peaks that others may have meanwhile each step asks for, before it is followed.
// Not thread-safe: guarded by the stream's lock. O(1) a step, amortised, but for what leaves a recurrence: O(steps that
// were followed, up to as many as there is room for).

#include "allocator/far_return.h"
#include "allocator/step_log.h"
#include "allocator/stream_step.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cistern {

class Recurrence {
 public:
  // Whether the step, which was carried out, is passed over: asked first of each that is to be noted.
  [[nodiscard]] bool passes_over() noexcept {
    if (idle_ == 0) return false;
    --idle_;
    return true;
  }
  // Whether steps are written down, each by itself. Else two that cancel each other need not be noted one by one.
  [[nodiscard]] bool learns() const noexcept { return learns_; }
  // A step that was carried out. Requires: it is not passed over, and is not learned.
  void note(StreamStep::Kind kind, std::uint64_t address, std::uint64_t requested) noexcept {
    see(kind, StreamStep::rough_mark_of(address, requested));
    if ((state_ == near_) | (state_ == far_.state()) | (steps_ >= next_look_)) [[unlikely]]
      look();
  }
  // The same of a step that is written down. Returns whether the next ones may be followed. Requires: it learns.
  [[nodiscard]] bool learn(StreamStep::Kind kind, const StreamStep::Of& block, const InactiveSplitChange& splits);
  // So often a block went and came, which was not noted.
  void turned(std::int64_t times) noexcept {
    const std::uint64_t steps = learns_ ? 0 : 2 * static_cast<std::uint64_t>(times);
    steps_ += steps;
    tried_since_ += steps;  // nobody looked at them
  }
  // Something else happened. Requires: nothing is followed.
  void cut() noexcept {
    if (steps_ == cut_at_) return;
    cut_at_ = steps_;
    far_.begin(state_, steps_, followed_);
    const bool learned = learns_;
    search(kFirstSteps);
    if (learned) weigh_learning();
  }

  // Requires: learn said so of the last step, and all that the stream left for later is carried out.
  void follow() noexcept {
    is_followed_.store(true, std::memory_order_relaxed);
    if (!is_back_) {
      round_ = next_ = log_.steps() + known_;
      end_ = log_.steps() + log_.size();
    }
    start_ = next_;
    laps_ = 0;
    tried_since_ = steps_;
    vain_ = 0;
    learned_ /= 2;
    followed_since_ /= 2;
  }
  // As it is without the lock, too: nobody relies on that.
  [[nodiscard]] bool is_followed() const noexcept { return is_followed_.load(std::memory_order_relaxed); }
  // Whether that is the next step. Requires, of these: is_followed.
  [[nodiscard]] bool expects_allocation(std::uint64_t requested) const noexcept {
    return next_->is_allocation_of(requested);
  }
  [[nodiscard]] bool expects(StreamStep::Kind kind, std::uint64_t address) const noexcept {
    return next_->is(kind, address);
  }
  [[nodiscard]] const StreamStep& next() const noexcept { return *next_; }
  // The next step, which is pending from here on.
  const StreamStep& follow_next() noexcept { return *advance(); }
  // The next step, if it is what happens to a block that is in use, at that address: nothing is pending of it yet.
  [[nodiscard]] const StreamStep* next_of_live(std::uint64_t address) const noexcept {
    using enum StreamStep::Kind;
    return expects(free, address) || expects(use, address) || expects(wait, address) ? next_ : nullptr;
  }
  // Stops following. Calls lap(step, times) for each step of a round that was followed to its end, and carry_out(step)
  // for each after that, in their order. Then follows `go_on` or `cut`.
  template <class Lap, class CarryOut>
  void stop(Lap&& lap, CarryOut&& carry_out) {
    is_followed_.store(false, std::memory_order_relaxed);
    if (next_ < start_) --laps_;  // the last one is not whole
    followed_since_ += pending();
    if (laps_ != 0)
      for (const StreamStep* step = round_; step != end_; ++step) lap(*step, laps_);
    for (const StreamStep* step = start_; step != next_; step = behind(step)) carry_out(*step);
  }
  // What was followed is written down, as if it had been all the time; or the round alone, where that is too much.
  // Where the round was left is known until it is found again.
  void go_on() noexcept;

  // Host memory for what is written down.
  using Room = StepLog::Room;
  // More are never worth it: what is pending is carried out at once.
  static constexpr std::size_t kMostSteps = std::size_t{1} << 20;
  static constexpr std::size_t kBytesOfStep = StepLog::kBytesOfStep;
  // Whether there are steps to write down that there is no room for. As it is without the lock, too.
  [[nodiscard]] bool wants_room() const noexcept { return wanted_.load(std::memory_order_relaxed) != 0; }
  // For how many; 0: it has as much as it may.
  [[nodiscard]] std::size_t wanted(std::size_t most) const noexcept {
    const std::size_t steps = std::min(wanted_.load(std::memory_order_relaxed), most);
    return steps > log_.room() ? steps : 0;
  }
  // Takes the room, an empty one too. Returns the one from before, which goes without the lock. O(room that there was).
  // Requires: nothing is followed.
  [[nodiscard]] Room take(Room room) noexcept;
  // Steps that there is room for.
  [[nodiscard]] std::size_t room() const noexcept { return log_.room(); }
  // The same without other room: what is known goes with it.
  [[nodiscard]] Room give_up_room() noexcept;

 private:
  static constexpr std::uint64_t kFirstSteps = 512;  // that are not looked at; and that a state is looked for, at first
  static constexpr std::uint64_t kLongest = kMostSteps;
  // Where a block comes and goes alone no near state is looked for. With the pair that told of it an odd number, so
  // that the next one is not where the one before was: rounds have as many frees as allocations.
  static constexpr std::uint64_t kStepsBesidePairs = 65;
  static constexpr unsigned kMostVain = 4;
  static constexpr unsigned kMostVainCuts = 6;
  // Steps that were looked at in vain; as many are not looked at then, and more the next time.
  static constexpr std::uint64_t kMostTried = 2 * kLongest;

  // Steps of a round that may be left out at once.
  static constexpr std::size_t kMostLeftOut = 64;
  // How often a round may be found again, and the next step be another one, until it is not looked for.
  static constexpr unsigned kMostVainReturns = 8;
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  // Steps of a round that are compared with those that came last.
  static constexpr std::size_t kMostCompared = 1024;
  // Steps that are to be followed where the log told of them; and how often fewer may be until as few are asked for as
  // ever.
  static constexpr std::uint64_t kWorthGuess = 16;
  static constexpr unsigned kMostVainGuesses = 12;
  // One step in so many that is not followed is worth room for a longer round.
  static constexpr std::uint64_t kOftenLeft = 32;

  const StreamStep* advance() noexcept {
    const StreamStep* const step = next_;
    if (++next_ == end_) [[unlikely]] {
      next_ = round_;
      ++laps_;
    }
    return step;
  }
  [[nodiscard]] const StreamStep* behind(const StreamStep* step) const noexcept {
    return step + 1 == end_ ? round_ : step + 1;
  }
  void see(StreamStep::Kind kind, std::uint64_t rough_mark) noexcept {
    state_ += rough_mark * StreamStep::times(kind);
    ++steps_;
  }
  // From here on the state of now is looked for.
  void search(std::uint64_t longest) noexcept;
  void look_for_near() noexcept;
  void look_far() noexcept;
  void look_next() noexcept { next_look_ = std::min(near_due_, far_.due()); }
  // False: so much was refused. There may be more room some day.
  bool want(std::size_t steps) noexcept {
    if (steps >= refused_ && steps_ - refused_at_ < kLongest) return false;
    if (steps > wanted_.load(std::memory_order_relaxed)) wanted_.store(steps, std::memory_order_relaxed);
    return true;
  }
  // The same, and false where there is as much.
  bool want_more(std::size_t steps) noexcept { return steps > log_.room() && want(steps); }
  [[gnu::noinline]] void look() noexcept;
  void begin_learning() noexcept;
  void begin_log() noexcept;
  // To write a step down takes about what following one saves: where something else happens again and again before as
  // many were followed, it is in vain.
  void weigh_learning() noexcept {
    if (followed_since_ >= learned_) {
      vain_cuts_ = 0;
      return;
    }
    idle_ = std::max(idle_, std::min(std::max(kFirstSteps, learned_) << vain_cuts_, kMostTried));
    vain_cuts_ = std::min(vain_cuts_ + 1, kMostVainCuts);
  }
  // Steps that were followed. Requires: it is just stopped.
  [[nodiscard]] std::uint64_t pending() const noexcept {
    const std::ptrdiff_t rest = next_ - start_ + (next_ < start_ ? end_ - round_ : 0);
    return static_cast<std::uint64_t>(laps_ * (end_ - round_) + rest);
  }
  [[nodiscard]] bool goes_on_with(const StreamStep& step) noexcept;
  [[nodiscard]] bool knows_more_than_round() const noexcept {
    return log_.leads_here(known_, std::min(static_cast<std::size_t>(end_ - round_), kMostCompared));
  }
  void weigh_guess(std::uint64_t followed) noexcept;
  void weigh_round(std::uint64_t followed, bool is_long) noexcept;
  void begin_with_round() noexcept;
  void end_learning() noexcept;

  std::uint64_t idle_ = kFirstSteps;  // steps that are not looked at
  std::atomic<bool> is_followed_{false};
  bool learns_ = false;      // a state came again: what comes then is written down
  std::uint64_t state_ = 0;  // the rough sum of what came and went, whatever was made of it
  // The near state that is looked for, from which step on, and up to which; or rests.
  std::uint64_t near_ = 0;
  std::uint64_t near_since_ = 0;
  std::uint64_t near_due_ = kFirstSteps;
  std::uint64_t longest_ = kFirstSteps;  // steps that it is looked for
  bool near_rests_ = false;
  FarReturn far_{kLongest};
  std::uint64_t next_look_ = kFirstSteps;
  // Not beside the sum: two numbers that one step writes by themselves are not to be read as one.
  std::uint64_t steps_ = 0;     // that came and went, whatever was made of them
  std::uint64_t followed_ = 0;  // of those
  std::uint64_t cut_at_ = 0;    // with nothing before it
  StepLog log_;
  std::size_t known_ = 0;              // where in it the stream was as it is now; 0: never
  std::uint64_t unasked_ = 0;          // steps after which it is not asked
  unsigned vain_guesses_ = 0;          // in a row
  bool writes_ = false;                // up to now: there was room
  std::size_t unwritten_ = 0;          // steps that were followed since there was none
  std::uint64_t followed_of_log_ = 0;  // since it began, or a long round
  std::uint64_t left_of_log_ = 0;      // and those that were not
  std::uint64_t left_at_ = kNever;     // when a round was left last
  // What is followed: from the end on again from `round_`. Part of what is written down.
  const StreamStep* round_ = nullptr;
  const StreamStep* end_ = nullptr;
  const StreamStep* start_ = nullptr;
  const StreamStep* next_ = nullptr;
  std::int64_t laps_ = 0;  // how often it came to the end; once it is stopped, whole rounds
  // Where it was left, for a detour: before `next_`.
  bool was_left_ = false;
  bool was_followed_ = false;  // and nothing came since
  bool is_back_ = false;       // with the last step
  std::uint64_t sum_where_left_ = 0;
  std::size_t steps_beside_ = 0;  // that came since
  unsigned vain_returns_ = 0;     // in a row

  std::uint64_t tried_since_ = 0;  // what is looked at from that step on was in vain up to now
  unsigned vain_ = 0;              // how often it was
  // Since it began to learn: steps that came to be written down, and that were followed; half of those before it
  // followed last, a quarter of those before that, and so on.
  std::uint64_t learned_ = 0;
  std::uint64_t followed_since_ = 0;
  unsigned vain_cuts_ = 0;  // while it learned, in a row
  std::size_t refused_ = ~std::size_t{0};
  std::uint64_t refused_at_ = 0;        // that step
  std::atomic<std::size_t> wanted_{0};  // steps for which there is no room; 0: there is
};

}  // namespace cistern
