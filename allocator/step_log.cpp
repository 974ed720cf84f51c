#include "allocator/step_log.h"

#include "allocator/prefetch.h"

#include <algorithm>
#include <array>
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
  const std::uint32_t hash = hash_of_now();
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
  size_ = candidate_ = last_return_ = 0;
  while (size_ != count) write_again(std::min(count - size_, kWrittenAtOnce));
}

// The next steps, which are where they are to be. Their places are asked for before they are written: all of the table
// is seldom at hand.
void StepLog::write_again(std::size_t count) noexcept {
  std::array<std::uint32_t, kWrittenAtOnce> hashes;
  for (std::size_t i = 0; i < count; ++i) {
    const StreamStep step(room_.steps_[size_]);
    write_step(step, step.change());
    hashes[i] = hash_of_now();
    prefetch(&place_of(room_, hashes[i]));
  }
  for (std::size_t i = 0; i < count; ++i)
    place_of(room_, hashes[i]) = {hashes[i], static_cast<std::uint32_t>(size_ - count + i + 1)};
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
