#include "allocator/recurrence.h"

#include <algorithm>
#include <new>
#include <utility>

namespace cistern {
namespace {

template <class T>
std::unique_ptr<T[]> array_of(std::size_t count) noexcept {
  return std::unique_ptr<T[]>(new (std::nothrow) T[count]);
}

}  // namespace

void Recurrence::search(std::uint64_t longest) noexcept {
  learns_ = was_followed_ = was_left_ = is_back_ = false;
  sum_ = 0;
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
  if (least <= room_.size) return begin_learning();
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
  if (least > room_.size && want(least)) far_.rest(steps_, steps, followed_);
}

void Recurrence::begin_learning() noexcept {
  search(longest_);
  idle_ = 0;
  learns_ = true;
  learned_ = followed_since_ = 0;
  writes_ = true;
  size_ = border_ = last_round_ = unwritten_ = 0;
}

bool Recurrence::learn(StreamStep::Kind kind, const StreamStep::Of& block, const InactiveSplitChange& splits) {
  if (!StreamStep::can_tell(block, splits)) {
    cut();
    return false;
  }
  ++learned_;
  see(kind, StreamStep::rough_mark_of(block.address, block.requested));
  if (far_.is_due(state_, steps_)) look_far();
  writes_ = writes_ && size_ != room_.size;
  if (!writes_ && (!was_left_ || ++steps_beside_ > room_.size)) {
    end_learning();
    return false;
  }
  const StreamStep step(kind, block, splits);
  writes_ ? write(step) : pass(step);
  is_back_ = was_left_ && (std::exchange(was_followed_, false) ? goes_on_with(step) : sum_ == sum_where_left_);
  if (is_back_) return true;
  return writes_ && border_ >= kTried && border_ % kTried == 0 && sum_of_first(border_) == sum_;
}

// What is left out leads to where it began, and the step is the one behind it.
bool Recurrence::goes_on_with(const StreamStep& step) noexcept {
  std::uint64_t sum = 0;
  const StreamStep* expected = next_;
  for (std::size_t left_out = 0; left_out <= kMostLeftOut; ++left_out, expected = behind(expected)) {
    if (sum == 0 && *expected == step) {
      next_ = behind(expected);
      sum_where_left_ = sum_;
      return true;
    }
    sum += change_by(*expected);
  }
  return false;
}

void Recurrence::write(const StreamStep& step) noexcept {
  std::size_t border = border_;
  while (border != 0 && room_.steps[border] != step) border = room_.borders[border - 1];
  if (size_ != 0 && room_.steps[border] == step) ++border;
  if (size_ % kStepsOfSum == 0) room_.sums[size_ / kStepsOfSum] = sum_;
  sum_ += change_by(step);
  room_.steps[size_] = step;
  room_.borders[size_] = static_cast<std::uint32_t>(border);
  ++size_;
  border_ = border;
  if (sum_ == 0) last_round_ = size_;
}

// The states behind the first so many steps and now are the same if it is as large as that of all.
std::uint64_t Recurrence::sum_of_first(std::size_t steps) const noexcept {
  std::size_t at = steps / kStepsOfSum * kStepsOfSum;
  std::uint64_t sum = room_.sums[steps / kStepsOfSum];
  for (; at < steps; ++at) sum += change_by(room_.steps[at]);
  return sum;
}

void Recurrence::go_on() noexcept {
  const auto round = static_cast<std::size_t>(end_ - round_);
  const auto laps = static_cast<std::uint64_t>(laps_);
  const auto rest = static_cast<std::size_t>(next_ - start_) + (next_ < start_ ? round : 0);
  const std::size_t most = room_.size - room_.size / 16;
  const std::size_t left = size_ < most ? most - size_ : 0;
  writes_ = writes_ && laps <= left / round && laps * round + rest <= left;
  vain_returns_ = laps == 0 && rest == 0 ? vain_returns_ + 1 : 0;
  was_left_ = vain_returns_ < kMostVainReturns;
  was_followed_ = true;
  steps_beside_ = 0;
  followed_ += laps * round + rest;
  if (!writes_) steps_ += laps * round;
  for (std::size_t steps = writes_ ? laps * round + rest : rest; steps != 0; --steps, start_ = behind(start_)) {
    see(start_->kind(), start_->rough_mark());
    writes_ ? write(StreamStep(*start_)) : pass(*start_);
  }
  if (!writes_) {
    unwritten_ += laps == 0 ? rest : round;
    if (unwritten_ >= round) begin_with_round();
  }
  tried_since_ = steps_;
  sum_where_left_ = sum_;
}

// All but the round is forgotten, and how often it was followed: whole rounds lead back to where they began. It begins
// where it was left.
void Recurrence::begin_with_round() noexcept {
  StreamStep* const steps = room_.steps.get();
  StreamStep* const first = steps + (round_ - steps);
  const auto round = end_ - round_;
  std::rotate(first, first + (next_ - round_), first + round);
  if (first != steps) std::move(first, first + round, steps);
  round_ = next_ = steps;
  end_ = steps + round;
  writes_ = true;
  size_ = border_ = last_round_ = unwritten_ = 0;
  while (steps + size_ != end_) write(StreamStep(steps[size_]));
}

// There is no room for more. Where the state came late, it came again and again, and more room may do: of a long round
// in which all states come again soon no far one tells. What was written down in vain took a while, so nothing is for
// as long.
void Recurrence::end_learning() noexcept {
  if (last_round_ > room_.size / 8) static_cast<void>(want(4 * room_.size));
  search(std::min(4 * longest_, kLongest));
}

Recurrence::Room Recurrence::Room::of(std::size_t steps) noexcept {
  Room room{steps, array_of<StreamStep>(steps), array_of<std::uint32_t>(steps),
            array_of<std::uint64_t>(steps / kStepsOfSum + 1)};
  if (room.steps == nullptr || room.borders == nullptr || room.sums == nullptr) return {};
  return room;
}

Recurrence::Room Recurrence::take(Room room) noexcept {
  const std::size_t wanted = wanted_.exchange(0, std::memory_order_relaxed);
  if (room.size <= room_.size) {
    refused_ = wanted;
    return room;
  }
  if (!learns_) {
    std::swap(room_, room);
    begin_learning();
    return room;
  }
  std::copy_n(room_.steps.get(), size_, room.steps.get());
  std::copy_n(room_.borders.get(), size_, room.borders.get());
  std::copy_n(room_.sums.get(), (size_ + kStepsOfSum - 1) / kStepsOfSum, room.sums.get());
  if (was_left_)
    for (const StreamStep** step : {&round_, &end_, &next_}) *step = room.steps.get() + (*step - room_.steps.get());
  std::swap(room_, room);
  return room;
}

void Recurrence::give_up_room() noexcept {
  room_ = {};
  wanted_.store(0, std::memory_order_relaxed);
  search(kFirstSteps);
}

}  // namespace cistern
