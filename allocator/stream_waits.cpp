// Frees of blocks that other streams of the device used, with the lock of their own stream alone: behind events,
// which requests ask for as the heap's ask for those of PendingFrees: with the locks of the streams that have any, and
// of their own. To the stream's part of the statistics such a block is allocated until it is free: whoever looks has
// the heap's lock, and with that every free that waits is handed over and counted first. So has a request in paged
// memory as long as any free waits, where it may have to claim that: unless the log knows a place for it.

#include "allocator/stream_locks.h"
#include "allocator/stream_walks.h"

#include <array>
#include <cassert>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

namespace cistern {
namespace {

constexpr auto kCompleted = static_cast<std::uint64_t>(TraceAction::free_completed);

}  // namespace

// Requires: the stream's lock, it may serve, and nothing is followed. False: not here.
bool StreamHits::await_by_stream(StreamHeap& heap, std::uint64_t address, std::unique_lock<BiasedMutex> lock) noexcept {
  AwaitedFrees::Recording recording{address, nullptr, {}};
  if (!begin_awaiting(heap, recording)) return false;
  record_events(heap, recording, lock);
  return true;
}

// The block waits, for events that come; false, with nothing changed: not here.
bool StreamHits::begin_awaiting(StreamHeap& heap, AwaitedFrees::Recording& recording) noexcept {
  assert(heap.standing_use.is_told());  // a wait that is told takes room
  Block* const block = heap.live.find(recording.address);
  if (!can_await(heap, block)) return false;
  LazyFree& lazy = heap.lazy_free;
  // With others that wait something else would happen when they are free.
  const bool may_stand = lazy.block() == block && heap.awaited.empty();
  if (!may_stand && !settle_by_stream(heap)) return false;
  if (may_stand) {
    lazy.await();
  } else {
    heap.live.erase(recording.address);
    if (block->segment->is_paged()) leave_place(heap, *block);
  }
  recording.block = block;
  recording.uses.swap(block->uses);
  block->has_uses = false;
  block->state = BlockState::active_pending_free;
  block->pending_events = static_cast<std::uint32_t>(std::distance(recording.uses.begin(), recording.uses.end()));
  block->freed_at = begin_entries(heap, recording, block->bytes, block->requested);
  heap.awaited.begin(block);
  note_step<StreamStep::Kind::wait>(heap, *block, [] { return InactiveSplitChange{}; });
  return true;
}

// One for each stream that used the block. Returns when it was freed, for which the history hears of it. Requires: no
// request can be served from it yet.
std::uint64_t StreamHits::begin_entries(StreamHeap& heap, AwaitedFrees::Recording& recording, std::size_t bytes,
                                        std::size_t requested) noexcept {
  api_.note_free(recording.address, bytes, heap.stream.handle);
  const FreeThatWaits free = begin_wait(heap, recording.address, requested);
  for (const StreamUse& use : recording.uses) heap.awaited.add(device_, use.stream, recording, free.number, free.at);
  return free.at;
}

// Gives the stream's lock up around each record, as the heap's is, and in the end: the block is nobody's meanwhile, for
// its entries have no event yet.
void StreamHits::record_events(StreamHeap& heap, AwaitedFrees::Recording& recording,
                               std::unique_lock<BiasedMutex>& lock) noexcept {
  StreamUses& uses = recording.uses;
  std::shared_ptr<void> owner;  // of the stream that was recorded last: ends without the lock
  while (!uses.empty()) {
    const StreamUse& use = uses.front();
    PendingFrees::Entry recorded{heap.awaited.take_idle_event(), device_, use.stream, nullptr};
    lock.unlock();
    owner.reset();
    const CUresult result = record_event(use, &recorded.event, false, true);
    lock.lock();
    if (!bring_event(heap, recording, recorded, result, lock, owner)) return;
  }
  lock.unlock();
}

// For the recording's first use, which is over with that; `owner` gets what kept its stream alive. False: the heap
// ended the recording, with the stream's lock given up.
bool StreamHits::bring_event(StreamHeap& heap, AwaitedFrees::Recording& recording, PendingFrees::Entry& recorded,
                             CUresult result, std::unique_lock<BiasedMutex>& lock,
                             std::shared_ptr<void>& owner) noexcept {
  const bool has_event = result == CUDA_SUCCESS && recorded.event != nullptr;
  AwaitedFrees::Entry* const entry = has_event ? heap.awaited.find(recording, recorded.stream) : nullptr;
  if (entry == nullptr) {  // there is none, or the heap has taken it over
    lock.unlock();
    end_recording_by_heap(recording, recorded, result);
    return false;
  }
  entry->event = recorded.event;
  entry->recording = nullptr;
  StreamUses& uses = recording.uses;
  owner = std::move(uses.front().owner);
  heap.use_nodes.take(uses, uses.before_begin());
  return true;
}

// Without the stream's lock, as the heap's is given up for it: the state that the log knows places by is without the
// block, though its bytes are not free.
void StreamHits::leave_place(StreamHeap& heap, const Block& block) noexcept {
  const auto turn = turn_in_pages(heap);
  paged_->placement.freed(PagedMemory::place_of(block));
}

// Whether events on other streams of the device are all that a free of the block waits for.
bool StreamHits::can_await(const StreamHeap& heap, const Block* block) const noexcept {
  return block != nullptr && block->has_uses && block->state == BlockState::active_allocated && !block->is_held &&
         block->stack == kNoStackId && !block->oversize && !recorder_.keeps_tags() && can_await(heap, block->uses);
}

bool StreamHits::can_await(const StreamHeap& heap, const StreamUses& uses) const noexcept {
  if (is_recording_) return false;  // it may be a capture
  std::size_t events = 0;
  for (const StreamUse& use : uses)
    if (use.device != device_ || ++events > heap.awaited.room()) return false;
  return events != 0;
}

// An event was refused, or the work was waited for, or somebody took the heap's lock: with that the wait was counted.
void StreamHits::end_recording_by_heap(AwaitedFrees::Recording& recording, PendingFrees::Entry& entry,
                                       CUresult result) noexcept {
  Section section(*this);
  Lock& lock = section.lock;
  Block* const block = entry.block = recording.block;
  if (result == CUDA_SUCCESS) {
    retired_.take(recording.uses, recording.uses.before_begin(), block->segment->owner->use_nodes);
    queue_or_wait(entry, lock);
  }
  block->uses.swap(recording.uses);
  block->has_uses = !block->uses.empty();
  if (result != CUDA_SUCCESS)
    put_off(block);
  else if (block->has_uses)
    static_cast<void>(guard(block, lock));
  else if (block->pending_events == 0)
    complete_free(block, lock);
}

// Requires: the stream's lock, and of all streams it alone may have frees that wait. Null: not without the heap's lock.
[[gnu::flatten]] void* StreamHits::allocate_after_waits(StreamHeap& heap, std::size_t bytes) noexcept {
  std::uint64_t completed_at = 0;
  const std::array<StreamHeap* const, 1> own = {&heap};
  return complete_awaited<1>(own, &completed_at) ? allocate_asked(heap, bytes, completed_at) : nullptr;
}

// The same once the events were asked for. `completed_at`: when frees were complete that had waited; 0: none, or nobody
// is told.
void* StreamHits::allocate_asked(StreamHeap& heap, std::size_t bytes, std::uint64_t completed_at) noexcept {
  if (heap.recurrence.is_followed()) {
    if (void* const pointer = follow_request(heap, bytes)) return pointer;
    if (lacks_room(heap)) return nullptr;
  }
  return take_standing_or_hit(heap, bytes, [&](const Block& block) {
    if (completed_at != 0)
      write_by_stream_at<kAllocated>(heap, block.address, bytes, completed_at);
    else
      trace_by_stream<kAllocated>(heap, block.address, bytes);
  });
}

// The same where other streams have some.
void* StreamHits::allocate_among_waits(StreamHeap& heap, std::size_t bytes, const StreamIdentity& stream) noexcept {
  if (!heap.is_awake.load(std::memory_order_relaxed)) return nullptr;
  const StreamLocks locks(heap, awake_, awake_.awaiting());
  if (!may_serve(heap, stream)) return nullptr;
  if (!complete_awaited(locks.heaps(), nullptr)) return nullptr;
  if (heap.recurrence.is_followed()) {
    if (void* const pointer = follow_request(heap, bytes)) return pointer;
    if (lacks_room(heap)) return nullptr;
  }
  return take_standing_or_hit(heap, bytes,
                              [&](const Block& block) { trace_by_stream<kAllocated>(heap, block.address, bytes); });
}

// Requires: these streams' locks. Their frees that were waited for are complete, and none of the heap's is; false:
// that, or what a failing driver says, takes the heap's lock. `at`: when, if one stream's alone are asked for; see
// trace_completed.
template <std::size_t kStreams>
bool StreamHits::complete_awaited(std::span<StreamHeap* const, kStreams> heaps, std::uint64_t* at) noexcept {
  if (is_recording_) return false;  // see can_await
  const bool heap_has_some = (awake_.awaiting() & AwakeStreams::kOfHeap) != 0;
  if (heap_has_some && pending_.has_done()) return false;
  AwaitedOf<kStreams> awaited;
  for (StreamHeap* heap : heaps) {
    if (heap->standing_use.waits()) tell_standing_use(*heap);
    // One that has fallen asleep meanwhile has none.
    const bool has_some = heap->is_awake.load(std::memory_order_relaxed) && !heap->awaited.empty();
    if (has_some || kStreams == 1) awaited.add(*heap);
  }
  AwaitedFrees::Merged<kStreams> merged(awaited.span());
  const auto completed = [&](std::size_t list, const AwaitedFrees::Entry& entry) {
    return complete_by_stream(*awaited.heaps[list], entry, at);
  };
  const auto is_behind = [&](const AwaitedFrees::Entry& entry) {
    return heap_has_some && pending_.has_of(entry.device, entry.stream);
  };
  const CUresult result = merged.poll(api_, surroundings_.event_pools.of(device_), is_behind, completed);
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

// One of the events that a block waits for came. False, with the free not complete: it takes the heap's lock.
bool StreamHits::complete_by_stream(StreamHeap& heap, const AwaitedFrees::Entry& entry, std::uint64_t* at) noexcept {
  if (heap.awaited.has_others(entry)) {
    if (!heap.recurrence.is_followed()) --entry.block->pending_events;
    return true;
  }
  if (follow_done(heap, entry.address, at)) return true;
  if (heap.recurrence.is_followed() && lacks_room(heap)) return false;
  stop_following(heap);
  return complete_block(heap, *entry.block, at);
}

// Requires: nothing is followed.
bool StreamHits::complete_block(StreamHeap& heap, Block& block, std::uint64_t* at) noexcept {
  constexpr auto kDone = StreamStep::Kind::done;
  if (LazyFree& lazy = heap.lazy_free; lazy.block() == &block) {  // it may stand
    end_waiting(heap, block, at);
    block.state = BlockState::active_allocated;
    lazy.complete();
    note_step<kDone>(heap, block, [&] { return lazy.change_by_freeing(); });
    return true;
  }
  if (!settle_by_stream(heap)) return false;
  if (block.segment->is_paged()) return complete_in_pages(heap, block, at);
  const FreeNeighbours free(block);
  if (!count_free(heap, block, splits_by_freeing(block, free))) return false;
  end_waiting(heap, block, at);
  note_step<kDone>(heap, block, [&] { return splits_by_freeing(block, free); });
  const Block* const settled = put_free(&block, free, heap.of(block.kind), heap.spares);
  if (ages_segments_.load(std::memory_order_relaxed)) [[unlikely]]
    note_age(*settled);
  return true;
}

// The same of a block in paged memory.
bool StreamHits::complete_in_pages(StreamHeap& heap, Block& block, std::uint64_t* at) noexcept {
  if (!count_free(heap, block, {})) return false;
  end_waiting(heap, block, at);
  note_step<StreamStep::Kind::done>(heap, block, [] { return InactiveSplitChange{}; });
  const auto turn = turn_in_pages(heap);
  settle_paged(&block, heap.spares);
  return true;
}

void StreamHits::end_waiting(StreamHeap& heap, Block& block, std::uint64_t* at) noexcept {
  trace_completed(heap, block.address, block.requested, at);
  heap.awaited.end(&block);
  block.pending_events = 0;
}

// All that one request completes on its own stream, and a block that stood and comes back, happens at one time: reading
// the clock takes longer than the rest of an entry. Entries of several streams are told apart by their times.
void StreamHits::trace_completed(StreamHeap& heap, std::uint64_t address, std::size_t requested,
                                 std::uint64_t* at) noexcept {
  if (!history_.is_on()) return;
  if (at == nullptr) return write_by_stream<kCompleted>(heap, address, requested);
  if (*at == 0) *at = history_.clock().now();
  write_by_stream_at<kCompleted>(heap, address, requested, *at);
}

// Of all streams, in the order of the frees. By who has the heap's lock.
void StreamHits::hand_over_awaited() noexcept {
  AwaitedOf<std::dynamic_extent> awaited;
  awake_.for_each(awake_.awaiting(), [&](StreamHeap& heap) {
    if (heap.standing_use.waits()) tell_standing_use(heap);
    awaited.add(heap);
  });
  for (std::size_t i = 0; i < awaited.count; ++i)
    for (Block* const block : awaited.lists[i]->blocks()) {
      recorder_.wait_began(block->segment->kind, as_signed(block->bytes), block->oversize, attribution(*block));
      block->freed_in_grant = recorder_.grants();
    }
  AwaitedFrees::Merged<std::dynamic_extent> merged(awaited.span());
  for (std::optional<std::size_t> list = merged.next(); list.has_value(); list = merged.next()) {
    const AwaitedFrees::Entry& entry = merged.entry(*list);
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
  awake_.hand_over();
}

}  // namespace cistern
