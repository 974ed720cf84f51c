#pragma once

// Call stacks of the program under test: taken at every submission, so kept as bare return
// addresses, each different stack once.
// Not thread-safe: the driver holds its lock around every call.

#include <cistern/race_report.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace cistern::simulated {

// A stack of a RaceStacks, by number; 0: none.
using RaceStackId = std::uint32_t;

class RaceStacks {
 public:
  // Of each stack the innermost `most_frames` are kept. Requires: from 0 to SimulatedOptions::kMostRaceFrames.
  explicit RaceStacks(int most_frames) : most_frames_(most_frames) {}
  // The stack of the caller.
  [[nodiscard]] RaceStackId capture();
  [[nodiscard]] CallStack at(RaceStackId id) const;

 private:
  using Frames = std::vector<const void*>;
  const int most_frames_;
  std::map<Frames, RaceStackId> ids_;
  std::vector<const Frames*> stacks_{nullptr};  // by id
};

}  // namespace cistern::simulated
