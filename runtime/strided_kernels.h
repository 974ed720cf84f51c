#pragma once

// The kernels of strided work, for drivers that run kernels. They are loaded on first use, once for all
// devices, and never unloaded.
//
// Thread safety: any function may be called from any thread.

#include "runtime/driver_api.h"

namespace cistern {

// Queues the work on a stream of the current context; during a capture, too. Throws NotSupported if the
// driver cannot load kernels, DriverError.
void launch_strided(const DriverApi& api, const StridedWork& work, CUstream stream);

}  // namespace cistern
