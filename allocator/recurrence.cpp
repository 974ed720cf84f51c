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
  tried_ += learns_ ? size_ : since_;
  learns_ = was_followed_ = false;
  sum_ = 0;
  since_ = 0;
  longest_ = longest;
  if (tried_ < kMostTried) return;
  idle_ = kMostTried << vain_;
  vain_ = std::min(vain_ + 1, kMostVain);
  tried_ = 0;
  longest_ = kFirstSteps;
}

void Recurrence::look() noexcept {
  if (sum_ != 0) return search(std::min(4 * longest_, kLongest));
  // A free that the same request follows costs as little (LazyFree).
  if (since_ <= 2) {
    idle_ = kStepsBesidePairs;
    return search(longest_);
  }
  const std::uint64_t least = std::max(since_ + since_ / 8, kFirstSteps);
  if (least <= room_.size) return begin_learning();
  search(longest_);
  if (want(least)) return;
  // There may be more room by then.
  idle_ = kLongest;
  refused_ = ~std::size_t{0};
}

void Recurrence::begin_learning() noexcept {
  search(longest_);
  idle_ = 0;
  learns_ = true;
  size_ = border_ = last_round_ = 0;
}

bool Recurrence::learn(StreamStep::Kind kind, const StreamStep::Of& block, const InactiveSplitChange& splits) {
  if (!StreamStep::can_tell(block, splits)) {
    cut();
    return false;
  }
  if (size_ == room_.size) {
    end_learning();
    return false;
  }
  const std::size_t before = border_;
  write({kind, block, splits});
  const bool goes_on = std::exchange(was_followed_, false) && border_ == before + 1;
  return (goes_on || (border_ >= kTried && border_ % kTried == 0)) && sum_of_first(border_) == sum_;
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
  const auto at = static_cast<std::size_t>(next_ - round_);
  const auto laps = static_cast<std::uint64_t>(laps_);
  std::size_t left = room_.size - size_;
  std::size_t followed = laps * round + at;
  if (laps > left / round || followed > left) {
    if (laps <= 4 * room_.size / round) static_cast<void>(want(4 * room_.size));
    if (round + at > room_.size) return cut();
    begin_with_round();
    followed = at;
  }
  for (; followed != 0; --followed) write(StreamStep(room_.steps[size_ - round]));
  was_followed_ = border_ >= kTried;
}

// What came before the round that is followed is forgotten, and how often it was: whole rounds lead back to where they
// began.
void Recurrence::begin_with_round() noexcept {
  const std::size_t round = size_ - border_;
  std::move(&room_.steps[border_], &room_.steps[size_], &room_.steps[0]);
  size_ = border_ = last_round_ = 0;
  while (size_ != round) write(StreamStep(room_.steps[size_]));
}

// There is no room for more. Where the state came late, it came again and again, and more room may do. What was
// written down in vain took a while, so nothing is for as long.
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
  std::swap(room_, room);
  begin_learning();
  return room;
}

}  // namespace cistern
