#pragma once

// FarReturn: whether a stream came back to a state of long ago, whatever it did meanwhile.
//
// A state is looked for, and after a while a later one, for longer (Brent's search for cycles). What leads back to it
// soon, as rounds within a long one do, is no return: one comes after at least kQuiet steps that did not. Between
// returns that are none nobody looks for as many steps.
// Not thread-safe. O(1).

#include <algorithm>
#include <cstdint>

namespace cistern {

class FarReturn {
 public:
  static constexpr std::uint64_t kQuiet = 512;
  explicit FarReturn(std::uint64_t longest) noexcept : most_(longest) {}

  // The state of now is looked for, as a stream has it at its start.
  void begin(std::uint64_t state, std::uint64_t step, std::uint64_t followed) noexcept {
    longest_ = kQuiet;
    look_for(state, step, followed);
  }
  // Whether `look` has something to do. Asked after each step.
  [[nodiscard]] bool is_due(std::uint64_t state, std::uint64_t step) const noexcept {
    return (state == state_) | (step >= due_);
  }
  // Of that, for who asks of more at once: the state, and the step.
  [[nodiscard]] std::uint64_t state() const noexcept { return state_; }
  [[nodiscard]] std::uint64_t due() const noexcept { return due_; }
  // How many steps led back to the state, if it came back now, and most of them were not followed: `followed` of all up
  // to now were. Else 0.
  [[nodiscard]] std::uint64_t look(std::uint64_t state, std::uint64_t step, std::uint64_t followed) noexcept {
    std::uint64_t steps = 0;
    if (is_asleep_ && step >= due_) {
      is_asleep_ = false;
      state_ = home_;
      quiet_since_ = step;
    } else if (!is_asleep_ && state == state_) {
      const std::uint64_t since = step - since_;
      if (step - quiet_since_ > kQuiet && followed - followed_ < since - since / 8) steps = since;
      sleep_until(step + kQuiet);
    }
    if (step - since_ >= longest_) {
      longest_ = std::min(4 * longest_, most_);
      look_for(state, step, followed);
    }
    if (!is_asleep_) due_ = since_ + longest_;
    return steps;
  }
  // So many steps led back, and are to be followed: none is looked for until they should be. Where few were followed
  // since the last rest none is until the next state is: this one comes again after twice as many steps, thrice, and so
  // on, and each time there would be room for these.
  void rest(std::uint64_t step, std::uint64_t steps, std::uint64_t followed) noexcept {
    const bool was_in_vain = rested_at_ != 0 && followed - followed_at_rest_ < (step - rested_at_) / 2;
    rested_at_ = step;
    followed_at_rest_ = followed;
    const std::uint64_t next_state = since_ + longest_;
    sleep_until(was_in_vain ? next_state : std::min(step + steps + steps / 8, next_state));
  }

 private:
  void look_for(std::uint64_t state, std::uint64_t step, std::uint64_t followed) noexcept {
    state_ = home_ = state;
    since_ = quiet_since_ = step;
    followed_ = followed;
    is_asleep_ = false;
    due_ = step + longest_;
  }
  // No state is then like the one that is compared, but by accident.
  void sleep_until(std::uint64_t step) noexcept {
    is_asleep_ = true;
    state_ = ~home_;
    due_ = step;
  }

  std::uint64_t state_ = 0;
  std::uint64_t due_ = kQuiet;
  std::uint64_t home_ = 0;          // the state that is looked for
  std::uint64_t since_ = 0;         // that step
  std::uint64_t quiet_since_ = 0;   // it did not come since that one
  std::uint64_t followed_ = 0;      // of all up to then
  std::uint64_t longest_ = kQuiet;  // steps that it is looked for
  std::uint64_t rested_at_ = 0;     // the last time; 0: never
  std::uint64_t followed_at_rest_ = 0;
  std::uint64_t most_;
  bool is_asleep_ = false;
};

}  // namespace cistern
