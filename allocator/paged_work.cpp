// What the streams that have paged memory had queued at some time: events tell when it is done, and nobody waits.

#include "allocator/device_allocator.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace cistern {

// Of all streams that have bytes; nothing is recorded yet. Throws std::bad_alloc.
DeviceAllocator::PagedWork DeviceAllocator::work_of_paged_streams() const {
  EventPool& pool = surroundings_.event_pools.of(device_);
  PagedWork work;
  paged_->for_each_stream([&](StreamNumber number, const PagedMemory::Stream& stream) {
    work.orders.push_back({StreamUse{stream.heap->stream, device_, nullptr}, stream.heap, stream.heap->end, number});
    work.ends.push_back(
        {number, stream.heap->is_ended ? stream.heap->end : std::make_shared<StreamEnd>(pool, nullptr)});
  });
  return work;
}

// An event on each of them, with the lock given up. Those whose stream has none, since it is captured, say, are not
// among the ends afterwards; then it returns false.
bool DeviceAllocator::record(PagedWork& work, Lock& lock) noexcept {
  for (const PlanOrder& order : work.orders) ++order.heap->waiters;
  const bool during_capture = !routing_.empty();
  lock.unlock();
  for (std::size_t i = 0; i < work.orders.size(); ++i) {
    if (work.orders[i].heap->is_ended) continue;
    PendingFrees::Entry entry{nullptr, device_, work.orders[i].owner.stream, nullptr};
    const bool is_recorded = record_event(work.orders[i].owner, &entry.event, during_capture, false) == CUDA_SUCCESS;
    work.ends[i].end->event = entry.event;
    if (!is_recorded) work.ends[i].end.reset();
  }
  lock.lock();
  for (const PlanOrder& order : work.orders) --order.heap->waiters;
  return std::erase_if(work.ends, [](const PagedMemory::StreamWork& one) { return one.end == nullptr; }) == 0;
}

// Forgets what is done, and returns whether that is all. A failing driver is reported to whoever asks for its own: here
// it leaves things as they are.
bool DeviceAllocator::is_work_over(PagedMemory::Work& awaited) const noexcept {
  if (awaited.empty()) return true;
  try {
    const DriverScope scope(api_, context_, !routing_.empty());
    std::erase_if(awaited, [this](const PagedMemory::StreamWork& one) { return is_work_over(*one.end); });
  } catch (...) {  // no context
  }
  return awaited.empty();
}

}  // namespace cistern
