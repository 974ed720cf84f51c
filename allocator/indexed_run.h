#pragma once

// A free run, and what of it is found in FreeParts.

#include <cstdint>

#include "allocator/free_run.h"
#include "allocator/handle_counts.h"

namespace cistern {

struct IndexedRun {
  // The fragments at its edges of pages, and its handles.
  enum Part : std::uint32_t { kEnding = 1, kBeginning = 2, kHandles = 4, kAll = 7 };
  FreeRun run;
  std::uint32_t found = 0;
  HandleCounts::Classes classes = 0;  // of its handles, once these are found
};

}  // namespace cistern
