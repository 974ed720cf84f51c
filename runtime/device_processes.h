#pragma once

// Who uses a device of a table.

#include <cistern/processes.h>

#include "runtime/driver_api.h"

#include <vector>

namespace cistern {

// As the system lists them: the table's own list where it has one, else NVML's for the device's UUID.
// Throws NotSupported where nobody can tell, DriverError.
[[nodiscard]] std::vector<GpuProcess> processes_on(const DriverApi& api, CUdevice device);

}  // namespace cistern
