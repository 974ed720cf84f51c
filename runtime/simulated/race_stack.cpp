#include "runtime/simulated/race_stack.h"

#include <cistern/simulated.h>

#include <execinfo.h>

#include <array>

namespace cistern::simulated {

RaceStackId RaceStacks::capture() {
  if (most_frames_ == 0) return 0;
  std::array<void*, SimulatedOptions::kMostRaceFrames + 1> frames;
  const int count = ::backtrace(frames.data(), most_frames_ + 1);
  Frames key(frames.begin() + (count > 0 ? 1 : 0), frames.begin() + count);  // without this function
  const auto [place, is_new] = ids_.try_emplace(std::move(key), static_cast<RaceStackId>(stacks_.size()));
  if (is_new) stacks_.push_back(&place->first);
  return place->second;
}

CallStack RaceStacks::at(RaceStackId id) const { return id == 0 ? CallStack{} : CallStack{*stacks_[id]}; }

}  // namespace cistern::simulated
