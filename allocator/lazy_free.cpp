// A free and a request for the same size right after it, without a walk: see LazyFree.

#include "allocator/lazy_free.h"

#include "allocator/device_allocator.h"

#include <utility>

namespace cistern {

void HeapMutex::carry_out() noexcept {
  is_lazy_ = false;
  heap_.settle_lazy_free();
}

// Only of plain segments, and while nothing is under way that a request or a free would look at: all of that
// changes under the lock alone, which ends it. But for the tag, which is the calling thread's.
void DeviceAllocator::remember(Block* block, InactiveSplitChange change) {
  if (!block->segment->is_plain || block->stack != kNoStackId || !pending_.empty() || unrecorded_frees_ != nullptr ||
      !routing_.empty() || !budgets_.empty() || recorder_.keeps_tags() || collects_garbage())
    return;
  lazy_free_ = {block, change, 0, false};
  mutex_.be_lazy();
}

// Null, with nothing changed: the request is another.
void* DeviceAllocator::allocate_again(std::size_t bytes, const StreamIdentity& stream) noexcept {
  const Block* const block = lazy_free_.block;
  if (!lazy_free_.is_free || block->requested != bytes || block->segment->stream.id != stream.id ||
      current_tag() != kUntagged)
    return nullptr;
  lazy_free_.is_free = false;
  ++lazy_free_.turns;
  recorder_.trace(TraceAction::alloc, [&] { return point_of(*block, kNoStackId); });
  api_.note_allocate(block->address, block->bytes, stream.handle);
  return reinterpret_cast<void*>(block->address);
}

bool DeviceAllocator::free_lazily(std::uint64_t address) noexcept {
  const Block* const block = lazy_free_.block;
  if (block == nullptr || lazy_free_.is_free || block->address != address) return false;
  lazy_free_.is_free = true;
  api_.note_free(address, block->bytes, block->segment->stream.handle);
  recorder_.trace_freed([&] { return point_of(*block, kNoStackId); });
  return true;
}

void DeviceAllocator::settle_lazy_free() noexcept {
  const LazyFree lazy = std::exchange(lazy_free_, {});
  Block* const block = lazy.block;
  if (lazy.turns != 0)
    recorder_.turned(block->segment->kind, lazy.turns, as_signed(block->bytes), as_signed(block->requested),
                     lazy.change, block->oversize);
  if (!lazy.is_free) return;
  block_map_.erase(block->address);
  free_at_once(block);
}

}  // namespace cistern
