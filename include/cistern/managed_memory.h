#pragma once

// Managed memory: what host and devices reach at one address, and the driver moves between them as it is used
// (cuMemAllocManaged). Kept when it is given back, by the same heap as page-locked memory and by its rules
// (host_allocator.h): the host may write what it gets at once, so a block that streams used is used again only when
// they are done (record_managed_stream), or when the graph that uses it has ended.
//
// It may be larger than a device's memory; neither a memory fraction nor a device's statistics know of it.
// Thread safety: any function may be called from any thread. Units: bytes.

#include <cistern/device.h>
#include <cistern/export.h>
#include <cistern/host_allocator.h>
#include <cistern/stream.h>

#include <cstddef>

namespace cistern {

// Memory for the host and all devices; uninitialised. 0 bytes: nullptr. `device`: in whose context it is allocated.
// Costs and sizes as allocate_host's. Throws NotSupported where the device has no managed memory, OutOfMemoryError
// (with device -1), DriverError.
[[nodiscard]] CISTERN_EXPORT void* allocate_managed(std::size_t bytes, Device device = {});
// As allocate_host_aligned.
[[nodiscard]] CISTERN_EXPORT void* allocate_managed_aligned(std::size_t bytes, std::size_t alignment,
                                                            Device device = {});
// As deallocate_host, and deallocate_host_sized.
CISTERN_EXPORT void deallocate_managed(void* pointer) noexcept;
CISTERN_EXPORT void deallocate_managed_sized(void* pointer, std::size_t bytes) noexcept;
// As record_host_stream.
CISTERN_EXPORT bool record_managed_stream(void* pointer, const Stream& stream);
// As empty_host_cache.
CISTERN_EXPORT void empty_managed_cache();

// Counted as page-locked memory is; empty before cistern is initialised.
[[nodiscard]] CISTERN_EXPORT HostMemoryStats managed_memory_stats();
CISTERN_EXPORT void reset_peak_managed_memory_stats();
CISTERN_EXPORT void reset_accumulated_managed_memory_stats();

}  // namespace cistern
