#pragma once

// The driver that the free functions use: chosen once, by CISTERN_DEVICE, at first use.
//
// Thread safety: all functions may be called from any thread. What they return lives until
// the process has ended: it is never destroyed.

#include <cistern/device.h>

#include "runtime/context.h"
#include "runtime/driver_api.h"

namespace cistern {

// Loads the driver on first use. Throws NotSupported, with what to do, where there is none.
[[nodiscard]] const DriverApi& process_driver();
[[nodiscard]] Contexts& process_contexts();
// Whether it was loaded already; loads nothing.
[[nodiscard]] bool process_driver_loaded() noexcept;

// The index that `device` means for the calling thread. Throws InvalidArgument if there is
// no such device. Loads the driver.

[[nodiscard]] int resolve_device(Device device);

}  // namespace cistern
