#include <cistern/allocator.h>
#include <cistern/error.h>
#include <cistern/pytorch_names.h>
#include <cistern/stats.h>
#include <fmt/format.h>

#include "runtime/process_driver.h"
#include "runtime/stream_access.h"

namespace cistern {

void* caching_allocator_alloc(std::size_t bytes, Device device, const std::optional<Stream>& stream) {
  const int index = resolve_device(device);
  if (!stream) return allocate(bytes, current_stream(Device(index)));
  // A default stream without a device is that of the device that is asked for.
  const Stream bound = stream->device().is_current() ? StreamAccess::on_device(*stream, index) : *stream;
  if (StreamAccess::device(bound) != index)
    throw InvalidArgument(fmt::format("caching_allocator_alloc for device {} on {}: expected a stream of that device",
                                      index, bound.to_string()));
  return allocate(bytes, bound);
}

void caching_allocator_delete(void* pointer) noexcept { deallocate(pointer); }

std::size_t memory_cached(Device device) { return memory_reserved(device); }
std::size_t max_memory_cached(Device device) { return max_memory_reserved(device); }
void reset_max_memory_allocated(Device device) { reset_peak_memory_stats(device); }
void reset_max_memory_cached(Device device) { reset_peak_memory_stats(device); }

}  // namespace cistern
