#include "runtime/random_states.h"

namespace cistern {
namespace {

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t alignment) {
  return value + (alignment - value % alignment) % alignment;
}

}  // namespace

RandomState RandomStates::get(int device) const {
  const std::lock_guard lock(mutex_);
  const auto named = of_named_.find(device);
  return named == of_named_.end() ? of_others_ : named->second;
}

void RandomStates::set(int device, RandomState state) {
  const std::lock_guard lock(mutex_);
  of_named_[device] = state;
}

void RandomStates::set_each(const std::vector<RandomState>& states) {
  std::map<int, RandomState> named;
  for (const RandomState& state : states) named.emplace(static_cast<int>(named.size()), state);
  const std::lock_guard lock(mutex_);
  of_named_.swap(named);
}

void RandomStates::set_all(RandomState state) {
  const std::lock_guard lock(mutex_);
  of_named_.clear();
  of_others_ = state;
}

RandomStates::Taken RandomStates::take(int device, std::uint64_t count, std::uint64_t alignment) {
  const std::lock_guard lock(mutex_);
  RandomState& state = of_named_.try_emplace(device, of_others_).first->second;
  Taken taken{state, state, state};
  taken.first.offset = rounded_up(state.offset, alignment);
  taken.after.offset = taken.first.offset + rounded_up(count, alignment);
  state = taken.after;
  return taken;
}

void RandomStates::give_back(int device, const Taken& taken) noexcept {
  const std::lock_guard lock(mutex_);
  const auto named = of_named_.find(device);
  if (named != of_named_.end() && named->second == taken.after) named->second = taken.before;
}

RandomStates& random_states() {
  static RandomStates& states = *new RandomStates;
  return states;
}

}  // namespace cistern
