#pragma once

// Whether a device has virtual memory management: address ranges that memory is mapped into.

#include "runtime/driver_api.h"

namespace cistern {

// The driver's entries are there and the device says so. Throws DriverError.
[[nodiscard]] bool supports_virtual_memory(const DriverApi& api, CUdevice device);
// What physical memory of the device can be created as: exported as a file descriptor later, used
// by GPUDirect RDMA. A device that does not know the attribute has neither. Throws DriverError.
[[nodiscard]] bool supports_descriptor_handles(const DriverApi& api, CUdevice device);
[[nodiscard]] bool supports_rdma_of_virtual_memory(const DriverApi& api, CUdevice device);

}  // namespace cistern
