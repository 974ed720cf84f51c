#pragma once

// How many frames of each call stack the race detector keeps for programs that are tried in every order: none unless
// CISTERN_TEST_RACE_FRAMES says so.

#include <cstdlib>

namespace cistern {

// Worlds are made by the thousand, and to gather whole stacks takes two fifths of their time.
inline int race_frames() {
  const char* const wanted = std::getenv("CISTERN_TEST_RACE_FRAMES");
  return wanted == nullptr ? 0 : std::atoi(wanted);
}
inline constexpr const char* kHowToSeeFrames = "(with its call stacks: CISTERN_TEST_RACE_FRAMES=48)";

}  // namespace cistern
