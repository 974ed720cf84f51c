// The ladder: what is tried, in which order, when no free block serves a request. The
// order is PyTorch's: `classic` is exact in it.

#include "allocator/device_allocator.h"

namespace cistern {
namespace {

// Keeps a stream's pools alive while the lock is given up; ends with the lock held, whether
// a rung returns or throws.
class PoolReference {
 public:
  PoolReference(PoolPair& pools, std::unique_lock<std::mutex>& lock) : pools_(pools), lock_(lock) {
    ++pools_.references;
  }
  ~PoolReference() {
    if (!lock_.owns_lock()) lock_.lock();
    --pools_.references;
  }
  PoolReference(const PoolReference&) = delete;
  PoolReference& operator=(const PoolReference&) = delete;

 private:
  PoolPair& pools_;
  std::unique_lock<std::mutex>& lock_;
};

}  // namespace

Block* DeviceAllocator::serve_miss(const Request& request, Lock& lock) {
  const PoolReference reference(*request.pools, lock);
  if (call_free_memory_callbacks(request, lock))
    if (Block* block = take_free_block(request)) return block;
  if (Block* block = take_over_segment(request, lock)) return block;
  if (collects_garbage()) collect_garbage(lock);
  if (Block* block = allocate_segment(request, lock)) return block;
  // Pools that overflow serve before the cache is given back; releases before that did last.
  if (!follows_2_4())
    if (Block* block = take_from_overflow(request)) return block;
  if (caches_) {
    if (release_oversize(request, lock))
      if (Block* block = allocate_segment(request, lock)) return block;
    if (!capture_under_way()) {
      full_flush(lock);
      if (options_.research_after_flush)
        if (Block* block = take_free_block(request)) return block;
      recorder_.allocation_retried();
      if (Block* block = allocate_segment(request, lock)) return block;
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
