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
// (after Brent's search for cycles). When the nearer one comes again, the steps from there on are written down, each
// with how many before it are those from the beginning (the borders of Knuth, Morris and Pratt). Once these are enough,
// and the states were the same by a sum that is not rough, the next ones are expected, and followed. This sum has 64
// bits: that two sets of blocks look alike is not to be expected in the life of any machine, and that they do and go on
// alike even less. The farther one is looked for whatever else is found meanwhile, such as short rounds within a long
// one: when it comes again, room for as many steps is wanted.
//
// A detour from a round is not its end: what is expected goes on where the state is again the one in which the round
// was left, or where steps of the round that lead nowhere were left out.
//
// What happens on the stream beside these steps, and whatever changes under the heap's lock, is told by `cut`:
// what was known is forgotten. So all of a round was done by steps alone, which had room for it (in the map of live
// blocks, in spare blocks, below the peaks), and that room is as it was until somebody has cut: what is pending is
// carried out before. Room below the peaks that others may have meanwhile each step asks for, before it is followed.
// Not thread-safe: guarded by the stream's lock. O(1) a step, amortised, but for what leaves a recurrence: O(steps that
// were followed, up to as many as there is room for).

#include "allocator/far_return.h"
#include "stats/block_ledger.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace cistern {

// What happens to a block of the stream.
class StreamStep {
 public:
  enum class Kind : std::uint8_t {
    allocation,
    free,  // at once
    use,   // another stream uses it: the first since it was handed out
    wait,  // freed, behind events on all those that used it
    done,  // and these came
  };
  struct Of {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint64_t requested = 0;
    PoolKind pool = PoolKind::small;
  };

  StreamStep() = default;
  // `splits`: the change that came with it.
  StreamStep(Kind kind, const Of& block, const InactiveSplitChange& splits) noexcept
      : where_(block.address << kAddressShift | block.bytes / kUnit),
        what_(block.requested | size_of(splits) / kUnit << kSplitsShift |
              static_cast<std::uint64_t>(splits.bytes < 0) << kFellShift |
              static_cast<std::uint64_t>(splits.count + kMostJoined) << kCountShift |
              static_cast<std::uint64_t>(block.pool) << kPoolShift | static_cast<std::uint64_t>(kind) << kKindShift) {}
  // Whether such a step can be told. What is larger is no part of a recurrence.
  [[nodiscard]] static bool can_tell(const Of& block, const InactiveSplitChange& splits) noexcept {
    return ((block.address >> kAddressBits) | (block.bytes >> kMostBits) | (size_of(splits) >> kMostBits)) == 0;
  }

  [[nodiscard]] bool is_allocation_of(std::uint64_t requested) const noexcept {
    static_assert(Kind::allocation == Kind{0});
    return requested <= kRequestedMask && (what_ & (kRequestedMask | kKindMask)) == requested;
  }
  [[nodiscard]] bool is(Kind kind, std::uint64_t address) const noexcept {
    return (where_ & ~kUnitsMask) == address << kAddressShift && this->kind() == kind;
  }
  [[nodiscard]] Kind kind() const noexcept { return static_cast<Kind>(what_ >> kKindShift); }
  [[nodiscard]] std::uint64_t address() const noexcept { return where_ >> kUnitsBits << (kUnitsBits - kAddressShift); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return (where_ & kUnitsMask) * kUnit; }
  [[nodiscard]] std::uint64_t requested() const noexcept { return what_ & kRequestedMask; }
  [[nodiscard]] PoolKind pool() const noexcept { return static_cast<PoolKind>(what_ >> kPoolShift & 1); }
  [[nodiscard]] InactiveSplitChange splits() const noexcept {
    const auto size = static_cast<std::int64_t>((what_ >> kSplitsShift & kUnitsMask) * kUnit);
    const bool fell = (what_ >> kFellShift & 1) != 0;
    return {static_cast<std::int64_t>(what_ >> kCountShift & kCountMask) - kMostJoined, fell ? -size : size};
  }
  // Of a block, the same for all its steps. Rough: other blocks may make the same sum now and then.
  [[nodiscard]] static std::uint64_t rough_mark_of(std::uint64_t address, std::uint64_t requested) noexcept {
    return address / kUnit + (requested << (64 - kUnitsBits));
  }
  [[nodiscard]] std::uint64_t rough_mark() const noexcept {
    return (where_ >> kUnitsBits) + (what_ << (64 - kUnitsBits));
  }
  [[nodiscard]] static std::uint64_t mark_of(const Of& block) noexcept {
    std::uint64_t bits = (block.address << kAddressShift ^ block.bytes) * 0x9E3779B97F4A7C15ULL +
                         block.requested * 0xC2B2AE3D27D4EB4FULL;
    bits = (bits ^ bits >> 32) * 0xBF58476D1CE4E5B9ULL;
    return bits ^ bits >> 29;
  }
  // How often the step adds the block's mark to the sum that is the state. A block that is in use alone counts once;
  // used by others, or waiting, otherwise.
  [[nodiscard]] static constexpr std::uint64_t times(Kind kind) noexcept {
    constexpr std::array<std::int8_t, 5> kTimes = {1, -1, 2, 2, -5};
    static_assert(kTimes[0] + kTimes[1] == 0 && kTimes[0] + kTimes[2] + kTimes[3] + kTimes[4] == 0);
    return static_cast<std::uint64_t>(std::int64_t{kTimes[static_cast<std::size_t>(kind)]});
  }
  // Whether it is one of a block that other streams use.
  [[nodiscard]] static constexpr bool is_of_use(Kind kind) noexcept { return kind >= Kind::use; }
  friend bool operator==(const StreamStep&, const StreamStep&) = default;

 private:
  static constexpr std::uint64_t kUnit = 512;  // all addresses and sizes of blocks are multiples of it
  static constexpr unsigned kUnitsBits = 24;
  static constexpr std::uint64_t kUnitsMask = (std::uint64_t{1} << kUnitsBits) - 1;
  static constexpr unsigned kMostBits = 33;     // of bytes: 8 GiB less a unit
  static constexpr unsigned kAddressBits = 49;  // CUDA's addresses have 49 at most
  static constexpr unsigned kAddressShift = 64 - kAddressBits;
  static constexpr std::uint64_t kRequestedMask = (std::uint64_t{1} << kMostBits) - 1;
  static constexpr unsigned kSplitsShift = kMostBits;
  static constexpr unsigned kFellShift = kSplitsShift + kUnitsBits;
  static constexpr unsigned kCountShift = kFellShift + 1;
  static constexpr std::uint64_t kCountMask = 3;
  static constexpr std::int64_t kMostJoined = 2;  // inactive splits become one more at most, or so many fewer
  static constexpr unsigned kPoolShift = kCountShift + 2;
  static constexpr unsigned kKindShift = 61;
  static constexpr std::uint64_t kKindMask = ~std::uint64_t{0} << kKindShift;
  static_assert(kUnit == std::uint64_t{1} << (kMostBits - kUnitsBits) && kPoolShift + 1 == kKindShift);
  static_assert(kUnitsBits - kAddressShift == 9);

  [[nodiscard]] static std::uint64_t size_of(const InactiveSplitChange& splits) noexcept {
    return static_cast<std::uint64_t>(std::abs(splits.bytes));
  }

  // Not initialised: there are many, and each is written before it is read.
  std::uint64_t where_;  // from above: the address in units, the size in units
  std::uint64_t what_;   // from above: the kind, the pool, how splits changed, what was asked for
};

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
      round_ = next_ = room_.steps.get() + border_;
      end_ = room_.steps.get() + size_;
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
  struct Room {
    std::size_t size = 0;  // steps
    std::unique_ptr<StreamStep[]> steps;
    std::unique_ptr<std::uint32_t[]> borders;  // up to and with each step
    std::unique_ptr<std::uint64_t[]> sums;     // of what came and went before each kStepsOfSum-th step
    // Empty where there is none.
    [[nodiscard]] static Room of(std::size_t steps) noexcept;
  };
  // More are never worth it: what is pending is carried out at once.
  static constexpr std::size_t kMostSteps = std::size_t{1} << 20;
  // What a step takes of it, about.
  static constexpr std::size_t kBytesOfStep = sizeof(StreamStep) + sizeof(std::uint32_t);
  // Whether there are steps to write down that there is no room for. As it is without the lock, too.
  [[nodiscard]] bool wants_room() const noexcept { return wanted_.load(std::memory_order_relaxed) != 0; }
  // For how many; 0: it has as much as it may.
  [[nodiscard]] std::size_t wanted(std::size_t most) const noexcept {
    const std::size_t steps = std::min(wanted_.load(std::memory_order_relaxed), most);
    return steps > room_.size ? steps : 0;
  }
  // Takes the room, an empty one too. Returns the one from before, which goes without the lock. O(steps written down).
  // Requires: nothing is followed.
  [[nodiscard]] Room take(Room room) noexcept;
  // Steps that there is room for.
  [[nodiscard]] std::size_t room() const noexcept { return room_.size; }
  // Gives the room up, and what is known with it. Requires: nothing is followed.
  void give_up_room() noexcept;

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

  // So many steps come as they came before until the next ones are taken on trust.
  static constexpr std::size_t kTried = 16;
  // One sum for so many steps is kept.
  static constexpr std::size_t kStepsOfSum = 64;
  // Steps of a round that may be left out at once.
  static constexpr std::size_t kMostLeftOut = 64;
  // How often a round may be found again, and the next step be another one, until it is not looked for.
  static constexpr unsigned kMostVainReturns = 8;

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
  [[nodiscard]] static std::uint64_t change_by(StreamStep::Kind kind, const StreamStep::Of& block) noexcept {
    return StreamStep::mark_of(block) * StreamStep::times(kind);
  }
  [[nodiscard]] static std::uint64_t change_by(const StreamStep& step) noexcept {
    return change_by(step.kind(), {step.address(), step.bytes(), step.requested(), step.pool()});
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
  // False: so much was refused.
  bool want(std::size_t steps) noexcept {
    if (steps >= refused_) return false;
    if (steps > wanted_.load(std::memory_order_relaxed)) wanted_.store(steps, std::memory_order_relaxed);
    return true;
  }
  [[gnu::noinline]] void look() noexcept;
  void begin_learning() noexcept;
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
  void write(const StreamStep& step) noexcept;
  void pass(const StreamStep& step) noexcept { sum_ += change_by(step); }
  [[nodiscard]] bool goes_on_with(const StreamStep& step) noexcept;
  void begin_with_round() noexcept;
  void end_learning() noexcept;
  [[nodiscard]] std::uint64_t sum_of_first(std::size_t steps) const noexcept;

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
  // What is written down.
  std::uint64_t sum_ = 0;  // of what came and went since it began
  std::size_t size_ = 0;
  std::size_t border_ = 0;      // so many of the last steps are the first ones
  std::size_t last_round_ = 0;  // steps up to when the state came again last
  bool writes_ = false;         // up to now: there was room
  std::size_t unwritten_ = 0;   // steps that were followed since there was none
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
  std::atomic<std::size_t> wanted_{0};  // steps for which there is no room; 0: there is
  Room room_;
};

}  // namespace cistern
