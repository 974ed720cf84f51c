#pragma once

// Fills the driver table from the CUDA driver's library, loaded at run time.
//
// Each entry is asked of cuGetProcAddress by the version of its ABI that
// driver_entries.def states, so that a later driver gives the same signature.
// Thread safety: any function may be called from any thread.

#include <string>

#include "runtime/driver_api.h"

namespace cistern {

// The library to load: CISTERN_LIBCUDA if it is set, else libcuda.so.1.
[[nodiscard]] std::string cuda_library();

// The table of `library`. Calls nothing but cuGetProcAddress and cuDriverGetVersion.
// The library stays loaded for ever, as the driver requires. Optional entries that the
// driver lacks are null. Throws NotSupported, naming the library, the symbol and the driver's
// version, if it cannot be loaded, is older than 12.0, or lacks a required entry.
[[nodiscard]] DriverApi load_cuda_driver(const std::string& library = cuda_library());

}  // namespace cistern
