#pragma once

// cuRAND, as far as it is used: fills of device memory. Loaded on first use, and never unloaded.
//
// Thread safety: any function may be called from any thread; no lock is held while cuRAND works.

#include "runtime/driver_api.h"

namespace cistern {

// Queues the fill on a stream of the device, whose primary context is current; during a capture, too.
// Throws NotSupported: the library (CISTERN_LIBCURAND if it is set, else libcurand.so.10) cannot be
// loaded or lacks a function; LibraryError if it refuses.
void curand_fill(const DriverApi& api, int device, const RandomFill& fill, CUstream stream);

}  // namespace cistern
