// Mappings of paged memory that nobody uses any more are unmapped, some with each request that is looked for, once
// events show that the work before they were given up is done. The host waits for nothing.

#include "allocator/device_allocator.h"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>
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
  if (!is_work_over(retirement)) return;
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

// Events on all streams that have bytes: what they queued before may use the old addresses. Where one cannot be had the
// mappings stay.
void DeviceAllocator::begin_retirement(Lock& lock) noexcept {
  PagedMemory::Retirement& retirement = paged_->retirement;
  EventPool& pool = surroundings_.event_pools.of(device_);
  std::vector<PlanOrder> orders;
  std::vector<std::shared_ptr<StreamEnd>> awaited;
  try {
    paged_->for_each_stream([&](StreamNumber number, const PagedMemory::Stream& stream) {
      orders.push_back({StreamUse{stream.heap->stream, device_, nullptr}, stream.heap, stream.heap->end, number});
      awaited.push_back(stream.heap->is_ended ? stream.heap->end : std::make_shared<StreamEnd>(pool, nullptr));
    });
    paged_->placement.begin_retirement();
  } catch (const std::bad_alloc&) {
    return;
  }
  for (const PlanOrder& order : orders) ++order.heap->waiters;
  retirement.is_under_way = true;
  const bool during_capture = !routing_.empty();
  bool is_recorded = true;
  lock.unlock();
  for (std::size_t i = 0; i < orders.size() && is_recorded; ++i) {
    if (orders[i].heap->is_ended) {
      is_recorded = awaited[i] != nullptr;
      continue;
    }
    PendingFrees::Entry entry{nullptr, device_, orders[i].owner.stream, nullptr};
    is_recorded = record_event(orders[i].owner, &entry, during_capture, false) == CUDA_SUCCESS;
    awaited[i]->event = entry.event;
  }
  lock.lock();
  for (const PlanOrder& order : orders) --order.heap->waiters;
  retirement.is_under_way = false;
  if (is_recorded)
    retirement.awaited.swap(awaited);
  else
    paged_->placement.abandon_retirement();
  reclaimed_.notify_all();
}

// Whether all events of the retirement are done. A failing driver is reported to whoever asks for its own: here it
// leaves things as they are.
bool DeviceAllocator::is_work_over(PagedMemory::Retirement& retirement) const noexcept {
  try {
    const DriverScope scope(api_, context_, !routing_.empty());
    while (!retirement.awaited.empty()) {
      const CUevent event = retirement.awaited.back()->event;
      if (event != nullptr && api_.event_query(event) != CUDA_SUCCESS) return false;
      retirement.awaited.pop_back();
    }
    return true;
  } catch (...) {  // no context
    return false;
  }
}

}  // namespace cistern
