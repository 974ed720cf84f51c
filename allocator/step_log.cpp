#include "allocator/step_log.h"

#include <algorithm>
#include <new>
#include <utility>

namespace cistern {
namespace {

// Not initialised.
template <class T>
std::unique_ptr<T[]> array_of(std::size_t count) noexcept {
  return std::unique_ptr<T[]>(new (std::nothrow) T[count]);
}

}  // namespace

StepLog::Room StepLog::Room::of(std::size_t steps) noexcept {
  Room room;
  room.steps_ = array_of<StreamStep>(steps);
  room.places_.reset(new (std::nothrow) Place[places_for(steps)]());
  room.sums_ = array_of<std::uint64_t>(steps / kStepsOfSum + 1);
  if (room.steps_ == nullptr || room.places_ == nullptr || room.sums_ == nullptr) return {};
  room.size_ = steps;
  return room;
}

void StepLog::write(const StreamStep& step) noexcept {
  write_step(step, step.change());
  const std::uint64_t both = (context_ ^ sum_ * 0xD6E8FEB86659FD93ULL) * 0x9E3779B97F4A7C15ULL;
  const auto hash = static_cast<std::uint32_t>(both >> 32);
  Place& place = place_of(room_, hash);
  candidate_ = place.hash == hash && place.steps < size_ ? place.steps : 0;
  place = {hash, static_cast<std::uint32_t>(size_)};
}

// The states behind the first so many steps and now are the same if it is as large as that of all.
std::uint64_t StepLog::sum_before(std::size_t step) const noexcept {
  std::size_t at = step / kStepsOfSum * kStepsOfSum;
  std::uint64_t sum = room_.sums_[step / kStepsOfSum];
  for (; at < step; ++at) sum += room_.steps_[at].change();
  return sum;
}

void StepLog::begin_with(const StreamStep* first, const StreamStep* next, std::size_t count) noexcept {
  StreamStep* const steps = room_.steps_.get();
  StreamStep* const from = steps + (first - steps);
  std::rotate(from, from + (next - first), from + count);
  if (from != steps) std::move(from, from + count, steps);
  size_ = last_return_ = 0;
  while (size_ != count) write(StreamStep(steps[size_]));
}

// A place has the part of its hash that says where it is, so it is where it is to be among more.
StepLog::Room StepLog::move_to(Room room) noexcept {
  std::copy_n(room_.steps_.get(), size_, room.steps_.get());
  std::copy_n(room_.sums_.get(), (size_ + kStepsOfSum - 1) / kStepsOfSum, room.sums_.get());
  for (std::size_t i = 0; i < room_.places(); ++i)
    if (const Place& place = room_.places_[i]; place.steps != 0) place_of(room, place.hash) = place;
  std::swap(room_, room);
  return room;
}

}  // namespace cistern
