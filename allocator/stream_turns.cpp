// Turns of the block that stands, which another stream uses each time (StandingUse): with the lock of the block's
// stream alone. They take the place of the walks of stream_waits.cpp, which are told as soon as anything else happens.

#include "allocator/stream_walks.h"

#include <cassert>
#include <cstdint>
#include <memory>
#include <mutex>

namespace cistern {

// Requires: the stream's lock; the block that stands is in use, and by its own stream alone. Whether this use of it
// stays here. Throws std::bad_alloc, unchanged.
bool StreamHits::keep_use(StreamHeap& heap, StreamUse& use) {
  if (use.device != device_ || use.stream.id == heap.stream.id || !heap.standing_use.comes_again(use)) return false;
  LazyFree& lazy = heap.lazy_free;
  if (lazy.turns() == 0 || !lazy.is_plain() || heap.recurrence.learns()) return false;
  heap.standing_use.keep(use, heap.use_nodes);
  heap.standing_use.begin();
  lazy.share();
  return true;
}

bool StreamHits::free_again(StreamHeap& heap, std::uint64_t address) noexcept {
  history_.provide();  // for the request that follows, too
  if (heap.mutex.try_enter()) {
    assert(heap.standing_use.is_used());  // nobody was inside since this thread was
    if (!heap.lazy_free.is_of(address)) [[unlikely]]
      heap.mutex.leave();
    else if (await_again(heap))
      return true;
  }
  return free_beside_steps(heap, address);
}

void* StreamHits::take_again(StreamHeap& heap, std::size_t bytes, StreamIdentity stream, bool at_hand) {
  const AwakeStreams::Bits own = heap.awake_bit.load(std::memory_order_relaxed);
  if (awake_.awaiting() != own || current_tag() != kUntagged || !heap.mutex.try_enter())
    return allocate_beside_steps(&heap, bytes, stream, at_hand);
  assert(heap.standing_use.has_event());
  // It may be another stream's than it was found as.
  const bool waits = heap.stream.id == stream.id;
  void* const pointer = waits ? allocate_again(heap, bytes) : nullptr;
  heap.mutex.leave();
  if (pointer != nullptr) [[likely]]
    return pointer;
  return waits ? allocate_after_asking(heap, bytes, stream, at_hand)
               : allocate_beside_steps(&heap, bytes, stream, at_hand);
}

// The stream's lock did not suffice.
void* StreamHits::allocate_after_asking(StreamHeap& heap, std::size_t bytes, const StreamIdentity& stream,
                                        bool at_hand) {
  if (at_hand) return nullptr;
  void* const pointer = allocate_with_room(heap, bytes, stream);
  return pointer != nullptr ? pointer : allocate_by_heap(bytes, stream);
}

// Requires: the stream's lock, and that the use that is kept is the block's. Gives the lock up around the record, as
// record_events does, and in the end: by hand, for what ends on all ways out costs each of them.
bool StreamHits::await_again(StreamHeap& heap) noexcept {
  StandingUse& standing = heap.standing_use;
  LazyFree& lazy = heap.lazy_free;
  Block* const block = lazy.block();
  // With others that wait something else would happen when they are free.
  if (!heap.awaited.empty() || heap.awaited.room() == 0) {
    tell_standing_use(heap);
    return await_by_stream(heap, block->address, std::unique_lock(heap.mutex, std::adopt_lock));
  }
  AwaitedFrees::Recording recording{block->address, block, {}};
  const FreeThatWaits free = begin_wait(heap, block->address, block->requested);
  standing.free(recording, free.number, free.at);
  lazy.await();
  const StreamUse& use = standing.use();
  const StreamIdentity user = use.stream;
  CUevent event = standing.take_event();
  if (event == nullptr) event = heap.awaited.take_idle_event();
  heap.mutex.unlock();
  const CUresult result = record_event(use, &event, false, true);
  heap.mutex.lock();
  if (standing.is_recorded_by(recording)) [[likely]] {
    if (result == CUDA_SUCCESS && event != nullptr) [[likely]] {
      standing.await(event);
      heap.mutex.unlock();
      return true;
    }
    tell_standing_use(heap);
  }
  std::unique_lock lock(heap.mutex, std::adopt_lock);
  std::shared_ptr<void> owner;
  PendingFrees::Entry recorded{event, device_, user, nullptr};
  if (bring_event(heap, recording, recorded, result, lock, owner)) lock.unlock();
  return true;
}

// Requires: the stream's lock; the block that stands waits, and of all streams no other has frees that do. Null: not
// without the heap's lock.
void* StreamHits::allocate_again(StreamHeap& heap, std::size_t bytes) noexcept {
  StandingUse& standing = heap.standing_use;
  if (!standing.has_event() || (awake_.awaiting() & AwakeStreams::kOfHeap) != 0) {
    tell_standing_use(heap);
    return allocate_after_waits(heap, bytes);
  }
  const CUresult result = api_.event_query(standing.event());
  if (result != CUDA_SUCCESS) [[unlikely]] {
    tell_standing_use(heap);
    if (result == CUDA_ERROR_NOT_READY) return allocate_asked(heap, bytes, 0);
    if (result != CUDA_ERROR_INVALID_CONTEXT) heap.awaited.note_failure(result);  // as complete_awaited has it
    return nullptr;
  }
  standing.end();
  awake_.end_awaiting(heap.awake_bit.load(std::memory_order_relaxed), one_stream_serves_);
  assert(!heap.recurrence.is_followed());  // else nothing stands
  // From here on it is a turn like that of a pair.
  LazyFree& lazy = heap.lazy_free;
  const Block& block = *lazy.block();
  if (block.requested == bytes && heap.returned.is_surely_empty()) [[likely]] {
    if (history_.is_on()) trace_turn(heap, block);
    return reinterpret_cast<void*>(lazy.come_back_plainly());
  }
  std::uint64_t at = 0;
  trace_completed(heap, block.address, block.requested, &at);
  lazy.go(false);
  return allocate_asked(heap, bytes, at);
}

// Both at one time: see trace_completed.
void StreamHits::trace_turn(StreamHeap& heap, const Block& block) noexcept {
  std::uint64_t at = 0;
  trace_completed(heap, block.address, block.requested, &at);
  write_by_stream_at<kAllocated>(heap, block.address, block.requested, at);
}

void StreamHits::write_standing_use_down(StreamHeap& heap) noexcept {
  StandingUse& standing = heap.standing_use;
  const auto no_splits = [] { return InactiveSplitChange{}; };
  Block& block = *heap.lazy_free.block();
  if (standing.is_used()) {
    standing.end();
    block.has_uses = true;
    standing.move_to(block.uses);
    give_standing_event_back(heap);
    note_step<StreamStep::Kind::use>(heap, block, no_splits);
    return;
  }
  block.state = BlockState::active_pending_free;
  block.pending_events = 1;
  block.freed_at = standing.freed_at();
  AwaitedFrees::Recording recorded{block.address, &block, {}};
  AwaitedFrees::Recording& recording = standing.has_event() ? recorded : standing.recording();
  AwaitedFrees::Entry& entry =
      heap.awaited.add(device_, standing.use().stream, recording, standing.number(), standing.freed_at());
  heap.awaited.begin(&block);
  if (standing.has_event()) {
    entry.event = standing.take_event();
    entry.recording = nullptr;
  } else {
    standing.move_to(recording.uses);
  }
  standing.end();
  note_step<StreamStep::Kind::use>(heap, block, no_splits);
  note_step<StreamStep::Kind::wait>(heap, block, no_splits);
}

void StreamHits::give_standing_event_back(StreamHeap& heap) noexcept {
  if (CUevent event = heap.standing_use.take_event(); event != nullptr)
    heap.awaited.keep_idle_event(event, surroundings_.event_pools.of(device_));
}

// Nothing is kept. Requires: the heap's lock, and all is told.
void StreamHits::forget_standing_use(StreamHeap& heap) noexcept {
  StreamUses uses;
  heap.standing_use.move_to(uses);
  retire(uses, heap);
  give_standing_event_back(heap);
}

}  // namespace cistern
