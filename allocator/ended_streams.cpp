// The memory of streams that are over: it moves to other streams behind the event that their
// owner's last call left, waited for on the device, never by the host.

#include "allocator/device_allocator.h"

#include <memory>
#include <optional>

namespace cistern {

// An event on the stream, and from now on nobody finds its pools by its id. Without the event its
// memory serves nobody else: it goes back with the next full flush, for which the driver waits.
void DeviceAllocator::end_stream(const StreamUse& stream) noexcept {
  Section section(*this);
  Lock& lock = section.lock;
  bool known = pools_.knows(stream.stream.id);
  private_pools_.for_each([&](PrivatePool& pool) { known = known || pool.streams.knows(stream.stream.id); });
  if (!known) return;
  PendingFrees::Entry last{nullptr, stream.device, stream.stream, nullptr};
  const bool during_capture = !routing_.empty();
  const bool may_wait = !routing_.capture_under_way(true);
  lock.unlock();
  const CUresult result = record_event(stream, &last.event, during_capture, may_wait);
  lock.lock();
  // Nobody may be waiting for the stream when its owner destroys it: from here on nobody begins to.
  reclaimed_.wait(lock, [&] { return !is_waited_for(stream.stream.id); });
  try {
    std::shared_ptr<StreamEnd> end;
    if (result == CUDA_SUCCESS) {
      try {
        end = std::make_shared<StreamEnd>(surroundings_.event_pools.of(stream.device), last.event);
      } catch (...) {
        if (last.event != nullptr) surroundings_.event_pools.of(stream.device).release(last.event);
      }
    }
    pools_.end_stream(stream.stream.id, end);
    private_pools_.for_each([&](PrivatePool& pool) { pool.streams.end_stream(stream.stream.id, end); });
  } catch (...) {  // no memory to note it: its blocks serve nobody until the next full flush
  }
  forget_ended_streams();
}

// Streams that are over and have nothing any more, where there may be many: programs that make one for each request
// have no end of them.
void DeviceAllocator::forget_ended_streams() noexcept {
  if (pools_.has_many_ended()) {
    if (paged_ != nullptr) {
      join_idle_bytes();
      drop_idle_paged_streams([](const StreamHeap& heap) { return heap.is_ended; });
    }
    pools_.drop_ended();
  }
  private_pools_.for_each([](PrivatePool& pool) {
    if (pool.streams.has_many_ended()) pool.streams.drop_ended();
  });
}

// Whether it left free bytes in pages, of which it is known when they may be had.
bool DeviceAllocator::left_bytes(const StreamHeap& heap) const noexcept {
  return heap.is_ended && heap.end != nullptr && heap.paged_stream >= 0 &&
         paged_->placement.free_runs().has_any_of(heap.paged_stream);
}

// Whether nothing has to be ordered behind them. Requires: the context is current.
bool DeviceAllocator::is_work_over(const StreamEnd& end) const noexcept {
  return end.event == nullptr || api_.event_query(end.event) == CUDA_SUCCESS;
}

// They are one stream's then: what lies side by side is one, and the others can be forgotten. The first one's, so that
// streams that come have the numbers again that those before had: the log knows their places by these.
void DeviceAllocator::join_idle_bytes() noexcept {
  try {
    const DriverScope scope(api_, context_, true);  // a capture that nobody told us of stays whole
    std::optional<StreamNumber> heir;
    paged_->for_each_stream([&](StreamNumber number, const PagedMemory::Stream& stream) {
      if (!left_bytes(*stream.heap) || !is_work_over(*stream.heap->end)) return;
      if (heir)
        paged_->placement.inherit(number, *heir);
      else
        heir = number;
    });
  } catch (...) {  // no context, or no host memory: what is left stays whose it is
  }
}

// So many of them are the heir's. False: there were none.
bool DeviceAllocator::inherit_idle_bytes(StreamNumber heir, Sectors least) noexcept {
  if (!pools_.has_ended_streams()) return false;
  constexpr int kMostAtWork = 32;  // mostly those that ended first are over first
  int at_work = 0;
  Sectors left = least;
  try {
    const DriverScope scope(api_, context_, true);
    pools_.for_each_ended([&](const StreamHeap& ended) {
      if (left <= 0 || at_work == kMostAtWork || !left_bytes(ended)) return;
      if (is_work_over(*ended.end))
        left -= paged_->placement.inherit(ended.paged_stream, heir, left);
      else
        ++at_work;
    });
  } catch (...) {  // as above
  }
  return left != least;
}

// Whether another thread waits for the stream, to unmap its pages or to give them to another.
bool DeviceAllocator::is_waited_for(std::uint64_t stream_id) const noexcept {
  for (const AddressRange* range = ranges_; range != nullptr; range = range->next)
    if (range->owner->waiters != 0 && !range->owner->is_ended && range->owner->stream.id == stream_id) return true;
  bool is_awaited = false;
  if (paged_ != nullptr)
    paged_->for_each_stream([&](StreamNumber, const PagedMemory::Stream& stream) {
      is_awaited =
          is_awaited || (stream.heap->waiters != 0 && !stream.heap->is_ended && stream.heap->stream.id == stream_id);
    });
  return is_awaited;
}

// A wholly free segment, or address range, of a stream that is over, for a request that would need
// new memory.
Block* DeviceAllocator::take_over_segment(const Request& request, Lock& lock) {
  StreamPools& pools = request.pools->home == nullptr ? pools_ : request.pools->home->streams;
  if (!caches_ || !pools.has_ended_streams()) return nullptr;
  Block* best = nullptr;
  pools.for_each_ended([&](StreamHeap& ended) {
    if (ended.end == nullptr) return;
    ended.of(request.kind).for_each([&](Block* block) {
      if (block->segment->range != nullptr || block->is_split() || block->bytes < request.rounded ||
          !policy_.may_serve(block->bytes, request.rounded))
        return;
      if (best == nullptr || block->bytes < best->bytes ||
          (block->bytes == best->bytes && block->address < best->address))
        best = block;
    });
  });
  if (best == nullptr) return expands(request) ? take_over_range(request, lock) : nullptr;
  Segment& segment = *best->segment;
  // Nobody's while the lock is given up.
  segment.pool->erase(best);
  segment.releasing = true;
  const bool ordered = order_behind(segment.owner->end, request, lock);
  segment.releasing = false;
  if (!ordered) {
    segment.pool->insert(best);
    return nullptr;
  }
  move_segment(&segment, *request.pools);
  return best;
}

// Orders later work of the request's stream behind the last of a stream that is over.
bool DeviceAllocator::order_behind(const std::shared_ptr<StreamEnd>& end, const Request& request, Lock& lock) noexcept {
  if (end->event == nullptr) return true;
  // Inside a capture the stream could not wait for what lies outside.
  const StreamUse user{request.pools->stream, device_, nullptr};
  if (is_captured(user)) return false;
  const bool relaxed = !routing_.empty();
  const std::shared_ptr<StreamEnd> kept = end;
  lock.unlock();
  CUresult result = CUDA_ERROR_INVALID_CONTEXT;
  try {
    const DriverScope scope(api_, context_, relaxed);
    result = api_.stream_wait_event(user.stream.handle, kept->event, 0);
  } catch (...) {  // no context: the memory stays where it is
  }
  lock.lock();
  return result == CUDA_SUCCESS;
}

}  // namespace cistern
