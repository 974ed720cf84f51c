// Frees of blocks that one other stream of the device used, with the lock of their own stream alone: behind an event,
// which requests ask for as the heap's ask for those of PendingFrees: with the locks of the streams that have any, and
// of their own. To the stream's part of the statistics such a block is allocated until it is free: whoever looks has
// the heap's lock, and with that every free that waits is handed over and counted first. So has a request in paged
// memory as long as any free waits, where it may have to claim that.

#include "allocator/stream_hits.h"
#include "allocator/stream_locks.h"

#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

namespace cistern {
namespace {

constexpr auto kRequested = static_cast<std::uint64_t>(TraceAction::free_requested);
constexpr auto kCompleted = static_cast<std::uint64_t>(TraceAction::free_completed);

}  // namespace

// Requires: the stream's lock, it may serve, and nothing is followed. The block waits, for an event that comes; none,
// with nothing changed: not here.
StreamHits::Awaited StreamHits::begin_awaiting(StreamHeap& heap, std::uint64_t address) noexcept {
  if (!heap.awaited.has_room()) return {};
  Block* const block = heap.live.find(address);
  if (!can_await(block)) return {};
  LazyFree& lazy = heap.lazy_free;
  // With others that wait something else would happen when they are free.
  const bool may_stand = lazy.block() == block && heap.awaited.empty();
  if (!may_stand && !settle_by_stream(heap)) return {};
  awake_.begin_awaiting(heap.awake_bit.load(std::memory_order_relaxed), one_stream_serves_);
  if (may_stand) {
    lazy.await();
  } else {
    heap.live.erase(address);
    if (block->segment->is_paged()) leave_place(heap, *block);
  }
  heap.recurrence.cut();
  // Before the block can serve another request.
  api_.note_free(address, block->bytes, heap.stream.handle);
  block->freed_at = history_.clock().now();
  if (history_.is_on()) write_by_stream_at<kRequested>(heap, address, block->requested, block->freed_at);
  block->state = BlockState::active_pending_free;
  block->pending_events = 1;
  heap.awaited.add(device_, block->uses.front().stream, block, awake_.next_number(one_stream_serves_));
  return {block, heap.awaited.take_idle_event()};
}

// Without the stream's lock, as the heap's is given up for it: the block is nobody's meanwhile, for its entry has no
// event yet.
void StreamHits::record_awaited(StreamHeap& heap, const Awaited& awaited) noexcept {
  Block* const block = awaited.block;
  PendingFrees::Entry entry{awaited.idle, device_, block->uses.front().stream, block};
  const CUresult result = record_event(block->uses.front(), &entry, false, true);
  if (result != CUDA_SUCCESS || entry.event == nullptr || !end_recording(heap, block, entry.event))
    end_recording_by_heap(block, entry, result);
}

// The state that the log knows places by is without the block, though its bytes are not free.
void StreamHits::leave_place(StreamHeap& heap, const Block& block) noexcept {
  const auto turn = turn_in_pages(heap);
  paged_->placement.freed(PagedMemory::place_of(block));
}

// Whether one event on another stream of the device is all that a free of the block waits for.
bool StreamHits::can_await(const Block* block) const noexcept {
  return block != nullptr && block->has_uses && block->state == BlockState::active_allocated && block->holds == 0 &&
         block->stack == kNoStackId && !block->oversize && !block->uses.empty() &&
         std::next(block->uses.begin()) == block->uses.end() && block->uses.front().device == device_;
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

// Requires: the stream's lock, and of all streams it alone has frees that wait. Null: not without the heap's lock.
[[gnu::flatten]] void* StreamHits::allocate_after_waits(StreamHeap& heap, std::size_t bytes) noexcept {
  std::uint64_t completed_at = 0;
  const std::array<StreamHeap* const, 1> own = {&heap};
  if (!complete_awaited<1>(own, &completed_at) || waits_in_pages(heap)) return nullptr;
  return take_standing_or_hit(heap, bytes, [&](const Block& block) {
    if (completed_at != 0)
      write_by_stream_at<kAllocated>(heap, block.address, bytes, completed_at);
    else
      trace_by_stream<kAllocated>(heap, block.address, bytes);
  });
}

// The same where other streams have some. What they complete leaves this stream's blocks as they are, and so the steps
// that it follows.
void* StreamHits::allocate_among_waits(StreamHeap& heap, std::size_t bytes, const StreamIdentity& stream) noexcept {
  if (!heap.is_awake.load(std::memory_order_relaxed)) return nullptr;
  const StreamLocks locks(heap, awake_, awake_.awaiting());
  if (!may_serve(heap) || heap.stream.id != stream.id || current_tag() != kUntagged) return nullptr;
  if (!complete_awaited(locks.heaps(), nullptr) || waits_in_pages(heap)) return nullptr;
  if (heap.recurrence.is_followed() && heap.awaited.empty())
    if (void* const pointer = follow_request(heap, bytes)) return pointer;
  return take_standing_or_hit(heap, bytes,
                              [&](const Block& block) { trace_by_stream<kAllocated>(heap, block.address, bytes); });
}

// Requires: these streams' locks. Their frees that were waited for are complete; false: that, or what a failing driver
// says, takes the heap's lock. `at`: when, if one stream's alone are asked for; see trace_completed.
template <std::size_t kStreams>
bool StreamHits::complete_awaited(std::span<StreamHeap* const, kStreams> heaps, std::uint64_t* at) noexcept {
  AwaitedOf<kStreams> awaited;
  for (StreamHeap* heap : heaps) {
    // One that has fallen asleep meanwhile has none.
    const bool has_some = heap->is_awake.load(std::memory_order_relaxed) && !heap->awaited.empty();
    if (has_some || kStreams == 1) awaited.add(*heap);
  }
  AwaitedFrees::Merged<kStreams> merged(awaited.span());
  const CUresult result = merged.poll(api_, surroundings_.event_pools.of(device_), [&](std::size_t list, Block& block) {
    return complete_by_stream(*awaited.heaps[list], block, at);
  });
  // A driver that wants a context asks for it of the heap's poll, too.
  const bool has_failed =
      result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY && result != CUDA_ERROR_INVALID_CONTEXT;
  for (std::size_t i = 0; i < awaited.count; ++i) {
    StreamHeap& heap = *awaited.heaps[i];
    if (heap.awaited.empty()) awake_.end_awaiting(heap.awake_bit.load(std::memory_order_relaxed), one_stream_serves_);
    // Of each round anew: one that went well since is not to be told of a failure before.
    heap.awaited.note_failure(has_failed && !heap.awaited.empty() ? result : CUDA_SUCCESS);
  }
  return result == CUDA_SUCCESS;
}

// False, with the free not complete: it takes the heap's lock.
bool StreamHits::complete_by_stream(StreamHeap& heap, Block& block, std::uint64_t* at) noexcept {
  forget_steps(heap);
  if (LazyFree& lazy = heap.lazy_free; lazy.block() == &block) {  // it may stand
    trace_completed(heap, block, at);
    block.pending_events = 0;
    block.state = BlockState::active_allocated;
    lazy.complete();
    return true;
  }
  if (!settle_by_stream(heap)) return false;
  if (block.segment->is_paged()) return complete_in_pages(heap, block, at);
  const FreeNeighbours free(block);
  if (!count_free(heap, block, change_by_freeing(block, free))) return false;
  trace_completed(heap, block, at);
  block.pending_events = 0;
  put_free(&block, free, heap.of(block.kind), heap.spares);
  return true;
}

// The same of a block in paged memory.
bool StreamHits::complete_in_pages(StreamHeap& heap, Block& block, std::uint64_t* at) noexcept {
  if (!count_free(heap, block, {})) return false;
  trace_completed(heap, block, at);
  block.pending_events = 0;
  const auto turn = turn_in_pages(heap);
  settle_paged(&block, heap.spares);
  return true;
}

// All that one request completes on its own stream, and what it is served, happens at one time: reading the clock takes
// longer than the rest of an entry. Entries of several streams are told apart by their times.
void StreamHits::trace_completed(StreamHeap& heap, const Block& block, std::uint64_t* at) noexcept {
  if (!history_.is_on()) return;
  if (at == nullptr) return write_by_stream<kCompleted>(heap, block.address, block.requested);
  if (*at == 0) *at = history_.clock().now();
  write_by_stream_at<kCompleted>(heap, block.address, block.requested, *at);
}

// Of all streams, in the order of the frees. By who has the heap's lock.
void StreamHits::hand_over_awaited() noexcept {
  AwaitedOf<std::dynamic_extent> awaited;
  awake_.for_each(awake_.awaiting(), [&](StreamHeap& heap) { awaited.add(heap); });
  AwaitedFrees::Merged<std::dynamic_extent> merged(awaited.span());
  for (std::optional<std::size_t> list = merged.next(); list.has_value(); list = merged.next()) {
    const AwaitedFrees::Entry& entry = merged.entry(*list);
    Block& block = *entry.block;
    recorder_.wait_began(block.segment->kind, as_signed(block.bytes), block.oversize, attribution(block));
    block.freed_in_grant = recorder_.grants();
    if (entry.event != nullptr) {  // else who records it queues it
      pending_.add_promised(entry);
      awaited.lists[*list]->set_promised(awaited.lists[*list]->promised() - 1);
    }
    merged.drop(*list);
  }
  for (std::size_t i = 0; i < awaited.count; ++i) {
    awaited.lists[i]->clear();
    if (const CUresult failure = awaited.lists[i]->take_failure(); failure != CUDA_SUCCESS) failed_query_ = failure;
  }
  awake_.end_awaiting();
}

}  // namespace cistern
