// Frees that other streams' work must precede: an event on each, recorded at the free.

#include "allocator/heap_blocks.h"

#include "allocator/guard_events.h"
#include "runtime/driver_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace cistern {

// Adds a stream to those that used the block, but not its own. Throws std::bad_alloc, unchanged.
void HeapBlocks::add_use(Block* block, StreamUse&& use) {
  if (is_own_stream(*block, use)) return;
  const CUstream handle = use.stream.handle;
  if (!add_use(block->uses, block->segment->owner->use_nodes, std::move(use))) return;
  block->has_uses = true;
  api_.note_use(block->address, block->bytes, handle);
}

bool HeapBlocks::add_use(StreamUses& uses, UseNodes& nodes, StreamUse&& use) const {
  const bool in_capture = !routing_.empty() && is_captured(use);
  auto last = uses.before_begin();
  for (auto known = uses.begin(); known != uses.end(); last = known++) {
    if (!same_stream(*known, use)) continue;
    known->in_capture = known->in_capture && in_capture;
    if (known->owner == nullptr) known->owner = std::move(use.owner);
    return false;
  }
  nodes.insert(uses, last, std::move(use))->in_capture = in_capture;
  return true;
}

// The same for a free. Without memory to remember it, its work is
// waited for instead: a stream must never be forgotten. False: neither was possible.
bool HeapBlocks::note_use(Block* block, const StreamUse& use, Lock& lock) noexcept {
  try {
    add_use(block, StreamUse(use));
    return true;
  } catch (...) {
    lock.unlock();
    const bool done = wait_for_device_of(use);
    lock.lock();
    return done;
  }
}

void HeapBlocks::begin_waiting(Block* block) const noexcept {
  block->state = BlockState::active_pending_free;
  block->freed_in_grant = recorder_.grants();
  block->freed_at = history_.clock().now();
  block->pending_events = static_cast<std::uint32_t>(std::distance(block->uses.begin(), block->uses.end()));
}

// Every stream that used the block gets an event now, so that work queued on it later is
// not waited for. No event for the block's own stream: later work there is ordered after
// this free already. During a capture there is no event to query, so the free is put off.
void HeapBlocks::free_behind_events(Block* block, Lock& lock) noexcept {
  provide_for_awaited(*block->segment->owner);
  begin_waiting(block);
  if (capture_under_way()) {
    put_off(block);
    note_captured_free(block);
  } else {
    static_cast<void>(guard(block, lock));
  }
}

// What the stream needs to do that by itself the next time.
void HeapBlocks::provide_for_awaited(StreamHeap& owner) noexcept {
  if (!owner.is_awake.load(std::memory_order_relaxed) || owner.awaited.promised() == AwaitedFrees::kMost) return;
  try {
    pending_.promise(AwaitedFrees::kMost - owner.awaited.promised());
    owner.awaited.set_promised(AwaitedFrees::kMost);
  } catch (...) {  // no host memory: the heap goes on doing it
  }
}

// In the order of the frees, as PyTorch has them.
void HeapBlocks::put_off(Block* block) noexcept {
  block->left = nullptr;
  (unrecorded_frees_ == nullptr ? unrecorded_frees_ : last_unrecorded_free_->left) = block;
  last_unrecorded_free_ = block;
}

// A capture queues no work, so a stream that used the block only while it was captured is done
// with it: what the graph does with the memory is ordered by the graph's own edges.
void HeapBlocks::drop_uses_in_capture(Block* block) noexcept {
  StreamUses& uses = block->uses;
  for (auto before = uses.before_begin(); std::next(before) != uses.end();) {
    if (!std::next(before)->in_capture) {
      ++before;
      continue;
    }
    --block->pending_events;
    retired_.take(uses, before, block->segment->owner->use_nodes);
  }
}

// Queues an event for each stream in `uses`, with the lock given up around each record. The
// block is nobody's meanwhile: its count of events was set first, so no poll completes it,
// and `uses` belongs to this thread. Streams whose event the driver refused stay in `uses`,
// and the block on a list to try again: without an event it cannot be reused. So do streams that
// are captured now, in which an event would become a part of the graph. Returns the last refusal.
CUresult HeapBlocks::guard(Block* block, Lock& lock) noexcept {
  CUresult refusal = CUDA_SUCCESS;
  StreamUses& uses = block->uses;
  StreamUses recorded;
  for (auto before = uses.before_begin(); std::next(before) != uses.end();) {
    const StreamUse& use = *std::next(before);
    PendingFrees::Entry entry{pending_.take_idle_event(use.device), use.device, use.stream, block};
    const bool during_capture = !routing_.empty();
    const bool may_wait = !routing_.capture_under_way(true);
    lock.unlock();
    const CUresult result = record_event(use, &entry.event, during_capture, may_wait);
    lock.lock();
    if (result == CUDA_SUCCESS) {
      recorded.splice_after(recorded.before_begin(), uses, before);
      queue_or_wait(entry, lock);
    } else {
      if (result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) refusal = result;
      ++before;
    }
  }
  retire(recorded, *block->segment->owner);
  if (!uses.empty()) {
    put_off(block);
  } else if (block->pending_events == 0) {
    complete_free(block, lock);
  }
  return refusal;
}

// Drops all of them, of a block of that stream. What kept their own streams alive is let go after the lock.
void HeapBlocks::retire(StreamUses& uses, StreamHeap& owner) noexcept {
  while (!uses.empty()) retired_.take(uses, uses.before_begin(), owner.use_nodes);
}

// See guard_events.h.
CUresult HeapBlocks::record_event(const StreamUse& use, CUevent* event, bool during_capture, bool may_wait) noexcept {
  return record_guard(surroundings_.contexts, surroundings_.event_pools, use, during_capture, may_wait, event);
}

bool HeapBlocks::names_its_stream(const StreamUse& use) const {
  return cistern::names_its_stream(surroundings_.contexts, use);
}

// Whether queuing an event on the stream would put it into a graph, or end a capture, which may be
// one that no pool is recorded to.
bool HeapBlocks::is_captured(const StreamUse& use) const noexcept {
  try {
    const ContextGuard guard(api_, context_of(use.device));
    return is_captured_in_context(use.stream);
  } catch (...) {  // the context could not be made current: nothing can be queued either
    return false;
  }
}

// Requires: the context of the stream's device is current.
bool HeapBlocks::is_captured_in_context(const StreamIdentity& stream) const noexcept {
  return is_captured_now(api_, stream);
}

bool HeapBlocks::wait_for_device_of(const StreamUse& use) const noexcept {
  try {
    const ContextGuard guard(api_, context_of(use.device));
    return api_.ctx_synchronize() == CUDA_SUCCESS;
  } catch (...) {  // the context could not be made current
    return false;
  }
}

void HeapBlocks::queue_or_wait(const PendingFrees::Entry& entry, Lock& lock) noexcept {
  if (entry.event == nullptr) {
    --entry.block->pending_events;
    return;
  }
  try {
    pending_.add(entry);
  } catch (...) {
    // No memory to remember the event: wait for it. If even that fails the event stays
    // unfinished for ever, and its block with it, which is safe.
    lock.unlock();
    const CUresult result = api_.event_synchronize(entry.event);
    if (result == CUDA_SUCCESS) surroundings_.event_pools.of(entry.device).release(entry.event);
    lock.lock();
    if (result == CUDA_SUCCESS) --entry.block->pending_events;
  }
}

// Takes out of the list what no capture that is under way has used. The rest stays where that
// capture finds it: the capture may be another thread's.
Block* HeapBlocks::take_due_frees() noexcept {
  Block* due = nullptr;
  Block** end = &due;
  Block* block = std::exchange(unrecorded_frees_, nullptr);
  while (block != nullptr) {
    Block* const next = std::exchange(block->left, nullptr);
    if (!routing_.empty() && is_captured_still(*block)) {
      put_off(block);
    } else {
      captured_frees_.forget(block);
      *end = block;
      end = &block->left;
    }
    block = next;
  }
  return due;
}

// Records what was put off or refused at a free, and reports what the driver refuses still.
void HeapBlocks::retry_unrecorded_frees(Lock& lock) {
  if (capture_under_way()) return;
  CUresult refusal = CUDA_SUCCESS;
  Block* block = take_due_frees();
  while (block != nullptr) {
    Block* next = std::exchange(block->left, nullptr);
    drop_uses_in_capture(block);
    if (const CUresult result = guard(block, lock); result != CUDA_SUCCESS) refusal = result;
    block = next;
  }
  check_driver(api_, refusal, DriverEntryId::event_record,
               [&] { return fmt::format("an event that guards a free on device {}", device_); });
}

}  // namespace cistern
