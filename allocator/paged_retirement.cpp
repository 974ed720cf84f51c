// Mappings of paged memory that nobody uses any more are unmapped, some with each request that is looked for, once
// events show that the work before they were given up is done. The host waits for nothing.

#include "allocator/device_allocator.h"

#include <new>
#include <vector>

namespace cistern {
namespace {

// Unmaps a request: a gather maps fewer on most traces, so that they end.
constexpr std::size_t kMostAtOnce = 64;

}  // namespace

void DeviceAllocator::retire_mappings(Lock& lock) noexcept {
  PagedMemory::Retirement& retirement = paged_->retirement;
  PagePlacement& placement = paged_->placement;
  if (retirement.is_under_way || (!placement.retires() && !placement.may_begin_retirement())) return;
  if (capture_under_way()) return;
  if (!placement.retires()) return begin_retirement(lock);
  if (!is_work_over(retirement.awaited)) return;
  std::vector<PagePlacement::Retiree> batch;
  try {
    batch = placement.take_retirees(kMostAtOnce);
  } catch (const std::bad_alloc&) {
    return;
  }
  retirement.is_under_way = true;
  ++range_operations_;
  const bool during_capture = !routing_.empty();
  lock.unlock();
  try {
    const DriverScope scope(api_, context_, during_capture);
    for (PagePlacement::Retiree& one : batch)
      one.is_gone = paged_->driver.unmap(one.address, one.pages).result == CUDA_SUCCESS;
  } catch (...) {  // no context: they stay
  }
  lock.lock();
  --range_operations_;
  retirement.is_under_way = false;
  placement.retired(batch);
  reclaimed_.notify_all();
  if (!placement.retires()) free_empty_arenas(lock);
}

// What streams queued before may use the old addresses. Where an event cannot be had the mappings stay.
void DeviceAllocator::begin_retirement(Lock& lock) noexcept {
  PagedMemory::Retirement& retirement = paged_->retirement;
  PagedWork work;
  try {
    work = work_of_paged_streams();
    paged_->placement.begin_retirement();
  } catch (const std::bad_alloc&) {
    return;
  }
  retirement.is_under_way = true;
  const bool is_recorded = record(work, lock);
  retirement.is_under_way = false;
  if (is_recorded)
    retirement.awaited.swap(work.ends);
  else
    paged_->placement.abandon_retirement();
  reclaimed_.notify_all();
}

}  // namespace cistern
