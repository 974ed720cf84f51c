#pragma once

// The driver that the free functions use: chosen once, by CISTERN_DEVICE, at first use.
//
// Thread safety: all functions may be called from any thread. What they return lives until
// the process has ended: it is never destroyed.

#include <cistern/device.h>
#include <cistern/simulated.h>

#include "runtime/context.h"
#include "runtime/driver_api.h"

namespace cistern {

// What CISTERN_DEVICE asks for; unset or empty: cuda.
struct DeviceRequest {
  enum class Kind { cuda, simulated, automatic };
  Kind kind = Kind::cuda;
  SimulatedOptions simulated = {};  // its settings, those of CUDA_VISIBLE_DEVICES included
};
// Reads CISTERN_DEVICE, and loads nothing. Throws InvalidArgument "CISTERN_DEVICE..." if it
// names no device, or a setting that is none.
[[nodiscard]] DeviceRequest requested_device();

// Loads the driver on first use. Throws NotSupported, with what to do, where there is none,
// and in a process that was forked after its parent had loaded it; InvalidArgument if
// CISTERN_DEVICE names no device. A load that failed is tried again by the next call.
[[nodiscard]] const DriverApi& process_driver();
[[nodiscard]] Contexts& process_contexts();
// Whether it is in use already, and usable: false in a forked child. Loads nothing.
[[nodiscard]] bool process_driver_loaded() noexcept;
// The number of its devices; 0 where there is no driver or no device. Loads it to ask, but
// says nothing and leaves process_driver_loaded as it is: asking is not using.
// Throws InvalidArgument as process_driver does; DriverError if the driver fails.
[[nodiscard]] int process_device_count();

// The index that `device` means for the calling thread. Throws InvalidArgument if there is
// no such device. Loads the driver.
[[nodiscard]] int resolve_device(Device device);
// Makes a device current again that was this thread's before. For guards: asks no driver.
void restore_current_device(int index) noexcept;

}  // namespace cistern
