#pragma once

// Copies and fills in stream order.
//
// Each call queues the work and returns; host memory must stay valid until it is done.
// Thread safety: any function may be called from any thread. Errors: DriverError.

#include <cistern/export.h>
#include <cistern/stream.h>

#include <cstddef>

namespace cistern {

// Copies `bytes` between host and device, or within the device, on `stream`.
// 0 bytes is nothing.
CISTERN_EXPORT void copy_async(void* destination, const void* source, std::size_t bytes, const Stream& stream);
// Sets `bytes` bytes of device memory to `value`.
CISTERN_EXPORT void fill_async(void* destination, unsigned char value, std::size_t bytes, const Stream& stream);

}  // namespace cistern
