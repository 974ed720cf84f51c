#pragma once

// Names that PyTorch's users know, for what has another name here. The deprecated ones are so there, too.
//
// Thread safety: any function may be called from any thread. Errors: those of what each stands for.

#include <cistern/device.h>
#include <cistern/export.h>
#include <cistern/stream.h>

#include <cstddef>
#include <optional>

namespace cistern {

// torch.cuda.caching_allocator_alloc: memory for a device, by default the current one, and one of its
// streams, by default the current one there; allocate has the rest. For other libraries' use, which
// give it back by caching_allocator_delete. Throws InvalidArgument if the stream is another device's.
[[nodiscard]] CISTERN_EXPORT void* caching_allocator_alloc(std::size_t bytes, Device device = {},
                                                           const std::optional<Stream>& stream = std::nullopt);
// As deallocate.
CISTERN_EXPORT void caching_allocator_delete(void* pointer) noexcept;

[[deprecated("use memory_reserved")]] [[nodiscard]] CISTERN_EXPORT std::size_t memory_cached(Device device = {});
[[deprecated("use max_memory_reserved")]] [[nodiscard]] CISTERN_EXPORT std::size_t max_memory_cached(
    Device device = {});
// Both reset all peaks, not theirs alone.
[[deprecated("use reset_peak_memory_stats")]] CISTERN_EXPORT void reset_max_memory_allocated(Device device = {});
[[deprecated("use reset_peak_memory_stats")]] CISTERN_EXPORT void reset_max_memory_cached(Device device = {});

}  // namespace cistern
