#include "allocator/recurrence.h"

#include <algorithm>
#include <utility>

namespace cistern {

void Recurrence::search(std::uint64_t longest) noexcept {
  learns_ = was_followed_ = was_left_ = is_back_ = false;
  longest_ = longest;
  if (steps_ - tried_since_ >= kMostTried) {
    idle_ = kMostTried << vain_;
    vain_ = std::min(vain_ + 1, kMostVain);
    tried_since_ = steps_;
    longest_ = kFirstSteps;
    far_.begin(state_, steps_, followed_);
  }
  look_for_near();
}

void Recurrence::look_for_near() noexcept {
  near_ = state_;
  near_since_ = steps_;
  near_due_ = steps_ + longest_;
  near_rests_ = false;
  look_next();
}

void Recurrence::look() noexcept {
  if (far_.is_due(state_, steps_)) look_far();
  if (near_rests_ || state_ != near_) {
    if (steps_ < near_due_) return look_next();
    return near_rests_ ? look_for_near() : search(std::min(4 * longest_, kLongest));
  }
  const std::uint64_t since = steps_ - near_since_;
  // A free that the same request follows costs as little (LazyFree).
  if (since <= 2) {
    near_ = ~state_;
    near_due_ = steps_ + kStepsBesidePairs;
    near_rests_ = true;
    return look_next();
  }
  const std::uint64_t least = std::max(since + since / 8, kFirstSteps);
  if (least <= log_.room()) return begin_learning();
  search(longest_);
  if (want(least)) return;
  // There may be more room by then.
  idle_ = kLongest;
  refused_ = ~std::size_t{0};
  far_.begin(state_, steps_, followed_);
  look_next();
}

// Room for all steps that lead back to a state of long ago, if there is not as much.
void Recurrence::look_far() noexcept {
  const std::uint64_t steps = far_.look(state_, steps_, followed_);
  const std::uint64_t least = steps + steps / 8;
  if (want_more(least)) far_.rest(steps_, steps, followed_);
}

void Recurrence::begin_learning() noexcept {
  search(longest_);
  idle_ = 0;
  learns_ = true;
  learned_ = followed_since_ = 0;
  left_at_ = kNever;
  log_.begin();
  begin_log();
}

void Recurrence::begin_log() noexcept {
  writes_ = true;
  unwritten_ = 0;
  followed_of_log_ = left_of_log_ = 0;
}

bool Recurrence::learn(StreamStep::Kind kind, const StreamStep::Of& block, const InactiveSplitChange& splits) {
  if (!StreamStep::can_tell(block, splits)) {
    cut();
    return false;
  }
  ++learned_;
  see(kind, StreamStep::rough_mark_of(block.address, block.requested));
  if (far_.is_due(state_, steps_)) look_far();
  writes_ = writes_ && !log_.is_full();
  if (!writes_ && (!was_left_ || ++steps_beside_ > log_.room())) {
    end_learning();
    return false;
  }
  const StreamStep step(kind, block, splits);
  writes_ ? log_.write(step) : log_.pass(step);
  is_back_ = was_left_ && (std::exchange(was_followed_, false) ? goes_on_with(step) : log_.sum() == sum_where_left_);
  known_ = writes_ && unasked_ == 0 ? log_.find() : 0;
  if (unasked_ != 0) --unasked_;
  if (is_back_ && known_ != 0 && knows_more_than_round()) is_back_ = false;
  return is_back_ || known_ != 0;
}

// There is no room for more. Where the state came late, it came again and again, and more room may do: of a long round
// in which all states come again soon no far one tells. What was written down in vain took a while, so nothing is for
// as long.
void Recurrence::end_learning() noexcept {
  if (log_.last_return() > log_.room() / 8) static_cast<void>(want(4 * log_.room()));
  search(std::min(4 * longest_, kLongest));
}

// What is left out leads to where it began, and the step is the one behind it.
bool Recurrence::goes_on_with(const StreamStep& step) noexcept {
  std::uint64_t sum = 0;
  const StreamStep* expected = next_;
  for (std::size_t left_out = 0; left_out <= kMostLeftOut; ++left_out, expected = behind(expected)) {
    if (sum == 0 && *expected == step) {
      next_ = behind(expected);
      sum_where_left_ = log_.sum();
      return true;
    }
    sum += expected->change();
  }
  return false;
}

// Where what came next is another thing each time, it is in vain to ask: and each time that few steps were followed it
// is not for twice as many.
void Recurrence::weigh_guess(std::uint64_t followed) noexcept {
  if (is_back_) return;
  vain_guesses_ = followed < kWorthGuess ? std::min(vain_guesses_ + 1, kMostVainGuesses) : 0;
  unasked_ = (std::uint64_t{1} << vain_guesses_) - 1;
}

// What led to a long round, of which a lap was followed whole, was no part of it, nor was what came before any.
void Recurrence::weigh_round(std::uint64_t followed, bool is_long) noexcept {
  const std::uint64_t left = left_at_ == kNever ? 0 : steps_ - left_at_;
  if (is_long) followed_of_log_ = left_of_log_ = 0;
  followed_of_log_ += followed;
  left_of_log_ += left;
}

void Recurrence::go_on() noexcept {
  const auto round = static_cast<std::size_t>(end_ - round_);
  const auto laps = static_cast<std::uint64_t>(laps_);
  const auto rest = static_cast<std::size_t>(next_ - start_) + (next_ < start_ ? round : 0);
  const std::uint64_t followed = laps * round + rest;
  const std::size_t most = log_.room() - log_.room() / 16;
  const std::size_t left = log_.size() < most ? most - log_.size() : 0;
  writes_ = writes_ && laps <= left / round && followed <= left;
  vain_returns_ = followed == 0 ? vain_returns_ + 1 : 0;
  was_left_ = vain_returns_ < kMostVainReturns;
  was_followed_ = true;
  steps_beside_ = 0;
  followed_ += followed;
  weigh_guess(followed);
  weigh_round(followed, laps != 0 && round > log_.room() / 2);
  if (!writes_) steps_ += laps * round;
  for (std::size_t steps = writes_ ? followed : rest; steps != 0; --steps, start_ = behind(start_)) {
    see(start_->kind(), start_->rough_mark());
    writes_ ? log_.write_followed(StreamStep(*start_)) : log_.pass(*start_);
  }
  if (!writes_) {
    // Of a longer round: it comes at least as many steps later.
    if (left_of_log_ > followed_of_log_ / kOftenLeft)
      static_cast<void>(want_more(std::min(2 * (left_of_log_ + followed_of_log_), 4 * log_.room())));
    unwritten_ += laps == 0 ? rest : round;
    if (unwritten_ >= round) begin_with_round();
  }
  tried_since_ = left_at_ = steps_;
  sum_where_left_ = log_.sum();
}

// All but the round is forgotten, and how often it was followed: whole rounds lead back to where they began. It begins
// where it was left.
void Recurrence::begin_with_round() noexcept {
  const auto round = static_cast<std::size_t>(end_ - round_);
  log_.begin_with(round_, next_, round);
  round_ = next_ = log_.steps();
  end_ = round_ + round;
  begin_log();
}

Recurrence::Room Recurrence::take(Room room) noexcept {
  const std::size_t wanted = wanted_.exchange(0, std::memory_order_relaxed);
  if (room.size() <= log_.room()) {
    refused_ = wanted;
    refused_at_ = steps_;
    return room;
  }
  const StreamStep* const had = log_.steps();
  if (!learns_) log_.begin();
  room = log_.move_to(std::move(room));
  if (!learns_)
    begin_learning();
  else if (was_left_)
    for (const StreamStep** step : {&round_, &end_, &next_}) *step = log_.steps() + (*step - had);
  return room;
}

Recurrence::Room Recurrence::give_up_room() noexcept {
  wanted_.store(0, std::memory_order_relaxed);
  search(kFirstSteps);
  return log_.give_up_room();
}

}  // namespace cistern
