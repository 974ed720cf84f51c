// `async`: blocks are the driver's own stream-ordered allocations, one each. What a block's own stream frees goes back
// at once, in order on it; what other streams used goes back when they are done. What is free here is what the driver
// would not take.

#include "allocator/device_allocator.h"
#include "runtime/driver_error.h"

#include <fmt/format.h>

namespace cistern {

void DeviceAllocator::prepare_driver_pool() {
  {
    const Lock lock(mutex_);
    if (stream_ordered_ != nullptr) return;
  }
  auto made = std::make_unique<StreamOrderedSource>(surroundings_.contexts, device_);
  const Lock lock(mutex_);
  if (stream_ordered_ == nullptr) stream_ordered_ = std::move(made);
}

// Gives back what became free without having gone back. Never throws: what is refused is tried again by the next flush.
void DeviceAllocator::release_idle(Lock& lock) noexcept {
  if (!has_idle_) return;
  has_idle_ = false;
  try {
    static_cast<void>(release_segments(wholly_free_segments(), lock));
  } catch (...) {  // refused: it stays cached, and accounted for
    if (!lock.owns_lock()) lock.lock();
  }
}

// What the driver's pool keeps for later, until it holds at most so much. Waits for the device, for what is queued is
// not free before; but during a capture of any thread, which that would break, what is free by then goes alone.
// Returns the bytes. Throws DriverError.
std::size_t DeviceAllocator::trim_driver_pool(std::size_t most_bytes, Lock& lock) {
  if (!is_stream_ordered()) return 0;
  const bool during_capture = !routing_.empty();
  const bool may_wait = !routing_.capture_under_way(true);
  std::size_t released = 0;
  CUresult result = CUDA_SUCCESS;
  DriverEntryId failed = DriverEntryId::ctx_synchronize;
  ++reclaims_in_flight_;
  lock.unlock();
  try {
    const DriverScope scope(api_, context_, during_capture);
    if (may_wait) result = api_.ctx_synchronize();
    if (result == CUDA_SUCCESS) {
      failed = DriverEntryId::mem_pool_trim_to;
      result = stream_ordered_->trim(most_bytes, &released);
    }
  } catch (...) {  // the context could not be made current
    result = CUDA_ERROR_INVALID_CONTEXT;
  }
  lock.lock();
  --reclaims_in_flight_;
  reclaimed_.notify_all();
  check_driver(api_, result, failed, [&] { return fmt::format("the memory pool of device {}", device_); });
  return released;
}

}  // namespace cistern
