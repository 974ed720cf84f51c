#pragma once

// The allocator's blocks, told to a tool that follows NVTX's extension for memory (nvToolsExtMem.h).

#include "runtime/driver_api.h"

namespace cistern {

// Sets the table's notes about blocks, if such a tool is attached, so that blocks are regions of heaps: a
// heap is what the driver gave in one piece, and a piece that goes back takes its heap along. Without one
// the table stays as it is.
void annotate_memory(DriverApi& api);

}  // namespace cistern
