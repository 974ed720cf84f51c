#pragma once

// NVML, as far as it is asked: the processes on a device. Loaded on first use, and never unloaded.
//
// Thread safety: any function may be called from any thread.

#include <cistern/processes.h>

#include <string>
#include <vector>

namespace cistern {

// The processes that use the device with this UUID ("GPU-..."). Throws NotSupported: the library
// (CISTERN_LIBNVML if it is set, else libnvidia-ml.so.1) cannot be loaded, or refuses.
[[nodiscard]] std::vector<GpuProcess> nvml_processes(const std::string& uuid);

}  // namespace cistern
