#pragma once

// A history as a snapshot has it.

#include <vector>

#include "stats/history.h"

namespace cistern {

inline std::vector<TraceEntry> entries_of(const DeviceHistory& history) {
  DeviceHistory::Copy copy;
  history.copy_to(copy);
  return DeviceHistory::entries_of(copy, TickClock::Conversion(history.clock()));
}

}  // namespace cistern
