#include "runtime/stream_pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/driver_error.h"
#include "runtime/process_driver.h"

namespace cistern {

PriorityRange driver_priority_range(const DriverApi& api, int device) {
  PriorityRange range;
  check_driver(api, api.ctx_get_stream_priority_range(&range.least, &range.greatest),
               DriverEntryId::ctx_get_stream_priority_range, [device] { return fmt::format("device {}", device); });
  return range;
}

StreamIdentity create_stream(const DriverApi& api, int device, unsigned flags, int priority) {
  CUstream handle = nullptr;
  check_driver(api, api.stream_create_with_priority(&handle, flags, priority),
               DriverEntryId::stream_create_with_priority,
               [&] { return fmt::format("a stream of priority {} on device {}", priority, device); });
  StreamIdentity identity;
  const CUresult result = identify_stream(api, handle, &identity);
  if (result != CUDA_SUCCESS) static_cast<void>(api.stream_destroy(handle));
  check_driver(api, result, DriverEntryId::stream_get_id,
               [device] { return fmt::format("a new stream on device {}", device); });
  return identity;
}

StreamPool::StreamPool(Contexts& contexts)
    : contexts_(contexts), devices_(static_cast<std::size_t>(contexts.device_count())) {}

std::unique_ptr<StreamPool::Ring> StreamPool::make_ring(int device, int priority) const {
  auto ring = std::make_unique<Ring>();
  std::size_t made = 0;
  try {
    for (; made < kStreams; ++made)
      ring->streams[made] = create_stream(contexts_.api(), device, CU_STREAM_NON_BLOCKING, priority);
  } catch (...) {
    while (made > 0) static_cast<void>(contexts_.api().stream_destroy(ring->streams[--made].handle));
    throw;
  }
  for (const StreamIdentity& stream : ring->streams) contexts_.known_streams().add(stream, device);
  return ring;
}

StreamIdentity StreamPool::next(int device, int priority) {
  const ContextGuard guard(contexts_.api(), contexts_.primary(device));
  const std::lock_guard lock(mutex_);
  DevicePool& pool = devices_[static_cast<std::size_t>(device)];
  if (!pool.has_range) {
    pool.range = driver_priority_range(contexts_.api(), device);
    pool.has_range = true;
  }
  const int level = std::clamp(priority, std::max(kGreatestPriority, pool.range.greatest), 0);
  std::unique_ptr<Ring>& ring = pool.rings[static_cast<std::size_t>(-level)];
  if (ring == nullptr) ring = make_ring(device, level);
  return ring->streams[ring->turn++ % kStreams];
}

StreamPool& process_stream_pool() {
  static StreamPool& pool = *new StreamPool(process_contexts());
  return pool;
}

}  // namespace cistern
