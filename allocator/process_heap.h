#pragma once

// The process-wide heaps, for what works on them beside the free functions.

#include "allocator/device_heaps.h"

namespace cistern {

// Made by the first call. Throws as the driver's loading does; NotSupported in a forked child.
[[nodiscard]] DeviceHeaps& process_heaps();

}  // namespace cistern
