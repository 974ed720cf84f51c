#pragma once

// Copies and fills.
//
// The calls named _async queue the work on a stream, by default the current one, and return;
// host memory must stay valid until it is done, and copies from or to pageable host memory may
// block the host (CUDA Driver API, "API synchronization behavior"). 0 bytes is nothing.
// Addresses are those of one unified space: the driver tells host, device and other devices apart.
// Thread safety: any function may be called from any thread.
// Units: bytes, but for the counts of values. Errors: InvalidArgument for a null or misaligned
// address, with nothing queued; DriverError.

#include <cistern/device.h>
#include <cistern/export.h>
#include <cistern/stream.h>

#include <cstddef>
#include <cstdint>

namespace cistern {

// Copies `bytes` between host and device, within a device, or between two devices.
CISTERN_EXPORT void copy_async(void* destination, const void* source, std::size_t bytes,
                               const Stream& stream = current_stream());
// The same, done when it returns: in order with the current device's legacy default stream, and
// refused by the driver while a capture forbids it. Blocks the host.
CISTERN_EXPORT void copy(void* destination, const void* source, std::size_t bytes);

// Copies `bytes` from one device's memory to another's, directly where peer access is enabled
// (see enable_peer_access), through host memory otherwise: the bytes are the same. `stream` may be
// of either device. The two devices may be one.
CISTERN_EXPORT void copy_peer_async(void* destination, Device destination_device, const void* source,
                                    Device source_device, std::size_t bytes, const Stream& stream = current_stream());

// Sets `bytes` bytes of device memory to `value`.
CISTERN_EXPORT void fill_async(void* destination, unsigned char value, std::size_t bytes,
                               const Stream& stream = current_stream());
// Sets `count` values of 2 or of 4 bytes. `destination` is a multiple of that size.
CISTERN_EXPORT void fill16_async(void* destination, std::uint16_t value, std::size_t count,
                                 const Stream& stream = current_stream());
CISTERN_EXPORT void fill32_async(void* destination, std::uint32_t value, std::size_t count,
                                 const Stream& stream = current_stream());

}  // namespace cistern
