// Frees of blocks that one other stream of the device used, with the lock of their own stream alone: behind an event,
// which the stream's own requests ask for as the heap's ask for those of PendingFrees. To the stream's part of the
// statistics such a block is allocated until it is free: whoever looks has the heap's lock, and with that every free
// that waits is handed over and counted first.

#include "allocator/stream_hits.h"

#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>

namespace cistern {
namespace {

constexpr auto kRequested = static_cast<std::uint64_t>(TraceAction::free_requested);
constexpr auto kCompleted = static_cast<std::uint64_t>(TraceAction::free_completed);

}  // namespace

// The stream's lock is given up around the record, as the heap's is: the block is nobody's meanwhile, for its entry has
// no event yet. False, with nothing changed: it takes the heap's lock.
bool StreamHits::free_behind_event(StreamHeap& heap, std::uint64_t address) noexcept {
  PendingFrees::Entry entry{nullptr, device_, {}, nullptr};
  {
    const std::lock_guard lock(heap.mutex);
    entry.block = begin_awaiting(heap, address);
    if (entry.block == nullptr) return false;
    entry.event = heap.awaited.take_idle_event();
  }
  const StreamUse& use = entry.block->uses.front();
  entry.stream = use.stream;
  const CUresult result = record_event(use, &entry, false, true);
  if (result != CUDA_SUCCESS || entry.event == nullptr || !end_recording(heap, entry.block, entry.event))
    end_recording_by_heap(entry.block, entry, result);
  return true;
}

// Requires: the stream's lock. The block waits, for an event that comes; null, with nothing changed: not here.
Block* StreamHits::begin_awaiting(StreamHeap& heap, std::uint64_t address) noexcept {
  if (!may_serve(heap) || !heap.awaited.has_room()) return nullptr;
  stop_following(heap);
  Block* const block = heap.live.find(address);
  if (!can_await(block)) return nullptr;
  LazyFree& lazy = heap.lazy_free;
  // With others that wait something else would happen when they are free.
  const bool may_stand = lazy.block == block && heap.awaited.empty();
  if (!may_stand && !settle_by_stream(heap)) return nullptr;
  StreamHeap* none = nullptr;
  if (!awaiting_.compare_exchange_strong(none, &heap, std::memory_order_relaxed) && none != &heap) return nullptr;
  if (may_stand)
    lazy.state = LazyFree::State::awaited;
  else
    heap.live.erase(address);
  heap.recurrence.cut();
  // Before the block can serve another request.
  api_.note_free(address, block->bytes, heap.stream.handle);
  trace_by_stream<kRequested>(heap, address, block->requested);
  block->state = BlockState::active_pending_free;
  block->freed_at = history_.clock().now();
  block->pending_events = 1;
  heap.awaited.add({nullptr, device_, block->uses.front().stream, block});
  return block;
}

// Whether one event on another stream of the device is all that a free of the block waits for. Paged memory's places
// are all streams'.
bool StreamHits::can_await(const Block* block) const noexcept {
  return block != nullptr && !block->segment->is_paged() && block->has_uses &&
         block->state == BlockState::active_allocated && block->holds == 0 && block->stack == kNoStackId &&
         !block->oversize && !block->uses.empty() && std::next(block->uses.begin()) == block->uses.end() &&
         block->uses.front().device == device_;
}

// False: the heap has taken the entry over meanwhile.
bool StreamHits::end_recording(StreamHeap& heap, Block* block, CUevent event) noexcept {
  std::shared_ptr<void> owner;  // ends without the lock
  const std::lock_guard lock(heap.mutex);
  AwaitedFrees::Entry* const entry = heap.awaited.find(block);
  if (entry == nullptr) return false;
  entry->event = event;
  owner = std::move(block->uses.front().owner);
  heap.use_nodes.take(block->uses, block->uses.before_begin());
  block->has_uses = false;
  return true;
}

// The event was refused, or the work was waited for, or somebody took the heap's lock: with that the wait was counted.
void StreamHits::end_recording_by_heap(Block* block, const PendingFrees::Entry& entry, CUresult result) noexcept {
  Section section(*this);
  Lock& lock = section.lock;
  if (result != CUDA_SUCCESS) {
    put_off(block);
    return;
  }
  retire(block->uses, *block->segment->owner);
  queue_or_wait(entry, lock);
  if (block->pending_events == 0) complete_free(block, lock);
}

// Requires: the stream's lock. The frees that were waited for are complete; false: that, or what a failing driver says,
// takes the heap's lock.
bool StreamHits::complete_awaited(StreamHeap& heap) noexcept {
  if (awaiting_.load(std::memory_order_relaxed) != &heap) return false;
  const CUresult result = heap.awaited.poll(api_, surroundings_.event_pools.of(device_),
                                            [&](Block& block) { return complete_by_stream(heap, block); });
  if (heap.awaited.empty()) awaiting_.store(nullptr, std::memory_order_relaxed);
  // A driver that wants a context asks for it of the heap's poll, too.
  if (result != CUDA_ERROR_NOT_READY && result != CUDA_ERROR_INVALID_CONTEXT) heap.awaited.note_failure(result);
  return result == CUDA_SUCCESS;
}

// False, with the free not complete: it takes the heap's lock.
bool StreamHits::complete_by_stream(StreamHeap& heap, Block& block) noexcept {
  forget_steps(heap);
  if (LazyFree& lazy = heap.lazy_free; lazy.block == &block) {  // it may stand
    trace_by_stream<kCompleted>(heap, block.address, block.requested);
    block.pending_events = 0;
    block.state = BlockState::active_allocated;
    lazy.state = LazyFree::State::free;
    return true;
  }
  if (!settle_by_stream(heap)) return false;
  const FreeNeighbours free(block);
  if (!count_free(heap, block, free)) return false;
  trace_by_stream<kCompleted>(heap, block.address, block.requested);
  block.pending_events = 0;
  put_free(&block, free, heap.of(block.kind), heap.spares);
  return true;
}

// By who has the heap's lock.
void StreamHits::hand_over_awaited(StreamHeap& heap) noexcept {
  AwaitedFrees& awaited = heap.awaited;
  std::size_t promised = awaited.promised();
  for (const AwaitedFrees::Entry& entry : awaited.entries()) {
    Block& block = *entry.block;
    recorder_.wait_began(block.segment->kind, as_signed(block.bytes), block.oversize, attribution(block));
    block.freed_in_grant = recorder_.grants();
    if (entry.event == nullptr) continue;  // who records it queues it
    pending_.add_promised(entry);
    --promised;
  }
  awaited.set_promised(promised);
  awaited.clear();
  failed_query_ = awaited.take_failure();
  awaiting_.store(nullptr, std::memory_order_relaxed);
}

}  // namespace cistern
