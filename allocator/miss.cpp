// The ladder: what is tried, in which order, when no free block serves a request. The
// order is PyTorch's: `classic` is exact in it. From the first attempt on no rung needs host memory,
// but for what keeps it (a new stream's first address range): what gives memory back gives it back
// when the host has none left either.

#include "allocator/device_allocator.h"

namespace cistern {

Block* DeviceAllocator::serve_miss(const Request& request, Lock& lock) {
  Climb climb(*request.pools, arena_, spare_handles_, lock);
  if (expands(request)) provide_for_growth(request, climb);
  if (call_free_memory_callbacks(request, lock))
    if (Block* block = take_free_block(request)) return block;
  if (Block* block = take_over_segment(request, lock)) return block;
  if (collects_garbage()) collect_garbage(lock);
  if (Block* block = allocate_segment(request, climb, lock)) return block;
  // Pools that overflow serve before the cache is given back; releases before that did last.
  if (!follows_2_4())
    if (Block* block = take_from_overflow(request)) return block;
  if (caches_ || is_stream_ordered()) {
    if (release_oversize(request, lock))
      if (Block* block = allocate_segment(request, climb, lock)) return block;
    if (!capture_under_way()) {
      full_flush(lock);
      climb.has_flushed = true;
      if (options_.research_after_flush)
        if (Block* block = take_free_block(request)) return block;
      recorder_.allocation_retried();
      if (Block* block = allocate_segment(request, climb, lock)) return block;
    }
  }
  if (follows_2_4())
    if (Block* block = take_from_overflow(request)) return block;
  fail(request, lock);
}

bool DeviceAllocator::call_free_memory_callbacks(const Request& request, Lock& lock) {
  if (!surroundings_.observers.has_free_memory_callbacks()) return false;
  lock.unlock();
  const bool freed = surroundings_.observers.free_memory(device_, request.segment_bytes);
  lock.lock();
  return freed;
}

}  // namespace cistern
