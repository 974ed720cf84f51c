#pragma once

// From a user's PoolFilter to what a heap's routing knows.

#include <cistern/mem_pool.h>

#include "allocator/device_heaps.h"
#include "allocator/pool_routing.h"

namespace cistern {

struct PoolFilterAccess {
  // Throws InvalidArgument for a stream of another driver or device, DriverError.
  static RecordingFilter resolve(const PoolFilter& filter, DeviceHeaps& heaps, int device);
};

}  // namespace cistern
