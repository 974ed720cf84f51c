#include "runtime/simulated/race_stack.h"

#include <execinfo.h>

#include <array>

namespace cistern::simulated {
namespace {

// Deep enough to leave the driver and a framework's dispatch behind.
constexpr int kMostFrames = 48;

}  // namespace

RaceStackId RaceStacks::capture() {
  std::array<void*, kMostFrames> frames{};
  const int count = ::backtrace(frames.data(), kMostFrames);
  Frames key(frames.begin() + (count > 0 ? 1 : 0), frames.begin() + count);  // without this function
  const auto [place, is_new] = ids_.try_emplace(std::move(key), static_cast<RaceStackId>(stacks_.size()));
  if (is_new) stacks_.push_back(&place->first);
  return place->second;
}

CallStack RaceStacks::at(RaceStackId id) const { return id == 0 ? CallStack{} : CallStack{*stacks_[id]}; }

}  // namespace cistern::simulated
