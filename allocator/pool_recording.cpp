// What begins and ends a private pool of the heap, and what is recorded to it.

#include "allocator/device_allocator.h"
#include "allocator/driver_scope.h"
#include "allocator/guard_events.h"
#include "runtime/driver_error.h"

#include <fmt/format.h>

#include <algorithm>

namespace cistern {

// The pool of that id, for a call that needs one in use.
PrivatePool& HeapReports::used_pool(PoolId id) const {
  require_private(id);
  PrivatePool* pool = private_pools_.find(id);
  if (pool == nullptr)
    throw InvalidArgument(fmt::format("pool {} on device {}: there is none of that id", to_string(id), device_));
  if (pool->is_freeable())
    throw InvalidArgument(
        fmt::format("pool {} on device {}: it was released, and only waits to be given back", to_string(id), device_));
  return *pool;
}

void DeviceAllocator::begin_allocate_to_pool(PoolId id, const RecordingFilter& filter) {
  require_private(id);
  const Lock lock(mutex_);
  if (routing_.is_recorded(id))
    throw InvalidArgument(fmt::format("pool {} on device {}: it is recorded to already", to_string(id), device_));
  PrivatePool* pool = private_pools_.find(id);
  if (pool != nullptr) pool = &used_pool(id);
  const bool is_new = pool == nullptr;
  if (is_new) pool = &private_pools_.add(id);
  try {
    routing_.add({pool, filter, thread_number(), 0});
  } catch (...) {
    if (is_new) private_pools_.drop_if_unreferenced(*pool, retired_);
    throw;
  }
  ++pool->uses;
}

void DeviceAllocator::end_allocate_to_pool(PoolId id) {
  require_private(id);
  Section section(*this);
  if (!routing_.remove(id))
    throw InvalidArgument(fmt::format("pool {} on device {}: it is not recorded to", to_string(id), device_));
  if (leftovers_) {
    const RelaxedScope relaxed(api_, true);  // the capture may end after this
    release_leftovers(section.lock);
  }
  if (PrivatePool* pool = private_pools_.find(id)) private_pools_.drop_if_unreferenced(*pool, retired_);
}

void DeviceAllocator::release_pool(PoolId id) {
  Section section(*this);
  PrivatePool& pool = used_pool(id);
  --pool.uses;
  private_pools_.drop_if_unreferenced(pool, retired_);
}

std::size_t HeapReports::pool_use_count(PoolId id) const {
  const HeapLook look(mutex_);
  const PrivatePool* pool = private_pools_.find(id);
  return pool == nullptr ? 0 : pool->uses;
}

void DeviceAllocator::add_pool(PoolId id, PrivatePoolSettings settings, PoolId parent) {
  const Lock lock(mutex_);
  PrivatePool* const above = parent.is_default() ? nullptr : &used_pool(parent);
  Retired::Owners owner;
  if (settings.owner != nullptr) owner.push_front(std::move(settings.owner));
  PrivatePool& pool = private_pools_.add(id);
  pool.settings = std::move(settings);
  pool.owner = std::move(owner);
  pool.parent = above;
  if (above != nullptr) ++above->dependents;
  pool.uses = 1;
}

// A MemPool's last use: what it has free goes now, the rest when it is freed.
void DeviceAllocator::end_pool(PoolId id) noexcept {
  Section section(*this);
  PrivatePool* pool = private_pools_.find(id);
  if (pool == nullptr || pool->is_freeable()) return;
  if (--pool->uses == 0) release_leftovers_of(id, section.lock);
}

std::uint64_t DeviceAllocator::enter_pool(PoolId id) {
  const Lock lock(mutex_);
  PrivatePool& pool = used_pool(id);
  const Recording recording{&pool, {RecordingFilter::Kind::thread, 0, 0}, thread_number(), guards_ + 1};
  routing_.add(recording);
  ++pool.uses;
  return ++guards_;
}

void DeviceAllocator::leave_pool(PoolId id, std::uint64_t guard) noexcept {
  {
    const Lock lock(mutex_);
    if (!routing_.remove_guard(guard)) return;
  }
  end_pool(id);
}

// The pools that serve a request, while something is recorded.
StreamPools& DeviceAllocator::route(const StreamIdentity& stream) {
  PrivatePool* pool = routing_.choose(stream, follows_2_4(), [&](std::uint64_t* id) {
    const ContextGuard guard(api_, context_);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t number = 0;
    const CUresult result = api_.stream_get_capture_info(stream.handle, &status, &number, nullptr, nullptr, nullptr);
    // The legacy default stream cannot be asked while a blocking stream is captured; it is not.
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return false;
    check_driver(api_, result, DriverEntryId::stream_get_capture_info,
                 [&] { return fmt::format("stream {} on device {}", stream.id, device_); });
    *id = number;
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  });
  return pool == nullptr ? pools_ : pool->streams;
}

}  // namespace cistern
