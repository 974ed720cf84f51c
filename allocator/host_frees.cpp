// Host blocks that are freed while streams or graphs may still use them: each waits for an event on every stream, and
// for every graph's end. No event is asked, recorded or waited for under the lock; where a thread captures, nothing of
// this breaks the capture.

#include "allocator/driver_scope.h"
#include "allocator/guard_events.h"
#include "allocator/host_counts.h"
#include "allocator/host_heap.h"
#include "runtime/driver_error.h"
#include "runtime/host_block_note.h"

#include <array>
#include <string>
#include <utility>

namespace cistern {

// Every stream that used the block gets an event now. The block is nobody's meanwhile: its count of events was set
// first. Streams whose event the driver refused, those that capture, and during a capture those without a handle stay
// in `uses`, and the block in a list to try again. Returns the last refusal of the driver.
CUresult HostHeap::guard(Block* block, Lock& lock) noexcept {
  CUresult refusal = CUDA_SUCCESS;
  StreamUses uses;
  uses.swap(block->uses);
  StreamUses done;
  while (!uses.empty()) {
    const CUresult result = guard_use(uses.front(), block, lock);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) refusal = result;
    StreamUses& to = result == CUDA_SUCCESS ? done : block->uses;
    to.splice_after(to.before_begin(), uses, uses.before_begin());
  }
  if (!block->uses.empty()) {
    block->left = std::exchange(unguarded_, block);
  } else if (block->pending_events == 0) {
    complete(block);
  }
  if (done.empty()) return refusal;
  lock.unlock();  // the last share of a stream ends by driver calls
  done.clear();
  lock.lock();
  return refusal;
}

CUresult HostHeap::guard_use(const StreamUse& use, Block* block, Lock& lock) noexcept {
  PendingFrees::Entry entry{pending_.take_idle_event(use.device), use.device, use.stream, block};
  lock.unlock();
  const bool may_wait = knows_capture_ == nullptr || !knows_capture_();
  const CUresult result = record_guard(contexts_, event_pools_, use, true, may_wait, &entry.event);
  lock.lock();
  if (result != CUDA_SUCCESS) return result;
  if (entry.event == nullptr) {
    --block->pending_events;
    return CUDA_SUCCESS;
  }
  try {
    pending_.add(entry);
    return CUDA_SUCCESS;
  } catch (...) {  // no memory to remember the event
  }
  // If not even waiting works the event stays unfinished for ever, and its block with it, which is safe.
  lock.unlock();
  const bool is_done = wait_for(entry) == CUDA_SUCCESS;
  if (is_done) event_pools_.of(entry.device).release(entry.event);
  lock.lock();
  if (is_done) --block->pending_events;
  return CUDA_SUCCESS;
}

CUresult HostHeap::wait_for(const PendingFrees::Entry& entry) noexcept {
  try {
    const DriverScope scope(api_, contexts_.primary(entry.device), true);
    return api_.event_synchronize(entry.event);
  } catch (...) {  // the context could not be made current
    return CUDA_ERROR_INVALID_CONTEXT;
  }
}

void HostHeap::complete(Block* block) noexcept {
  count_out(stats_.active_requests, 1);
  count_out(stats_.active_bytes, block->bytes);
  static_cast<void>(put_free(block, FreeNeighbours(*block), *block->segment->pool, arena_.spares()));
}

void HostHeap::end_use(Block* block) noexcept {
  if (block->state == BlockState::active_pending_free && --block->pending_events == 0) complete(block);
}

void HostHeap::end_captured_uses() noexcept {
  if (!captures_.any_ended()) return;
  captures_.take_ended([this](Block* block) {
    --block->holds;
    end_use(block);
  });
}

void HostHeap::retry_unguarded(Lock& lock) {
  CUresult refusal = CUDA_SUCCESS;
  Block* block = std::exchange(unguarded_, nullptr);
  while (block != nullptr) {
    Block* const next = std::exchange(block->left, nullptr);
    if (const CUresult result = guard(block, lock); result != CUDA_SUCCESS) refusal = result;
    block = next;
  }
  check_driver(api_, refusal, DriverEntryId::event_record,
               [] { return std::string("an event that guards a free of host memory"); });
}

// Completes what is done, unless another thread is at it. A failing driver is told to the request, which has changed
// nothing yet.
void HostHeap::poll(Lock& lock) {
  if (pending_.empty() || is_polling_) return;
  is_polling_ = true;
  CUresult result = CUDA_SUCCESS;
  bool ended = true;
  while (ended && result == CUDA_SUCCESS) result = poll_once(&ended, lock);
  pending_.drop_ended();
  is_polling_ = false;
  changed_.notify_all();
  check_driver(api_, result, DriverEntryId::event_query,
               [] { return std::string("an event that guards a free of host memory"); });
}

// An event has a context of its own: none need be current, unless the driver says so.
CUresult HostHeap::query(const PendingFrees::Entry& entry) noexcept {
  const CUresult result = api_.event_query(entry.event);
  if (result != CUDA_ERROR_INVALID_CONTEXT) return result;
  try {
    const ContextGuard guard(api_, contexts_.primary(entry.device));
    return api_.event_query(entry.event);
  } catch (...) {  // the context could not be made current
    return CUDA_ERROR_INVALID_CONTEXT;
  }
}

// Asks the first event of each queue. Requires: is_polling_ is this thread's.
CUresult HostHeap::poll_once(bool* ended, Lock& lock) noexcept {
  std::array<PendingFrees::Entry, 16> firsts;
  std::array<bool, 16> is_done{};
  CUresult refusal = CUDA_SUCCESS;
  *ended = false;
  std::size_t asked = 0;
  while (const std::size_t count = pending_.firsts(asked, firsts)) {
    lock.unlock();
    {
      const RelaxedScope relaxed(api_, true);
      for (std::size_t i = 0; i < count; ++i) {
        const CUresult result = query(firsts[i]);
        is_done[i] = result == CUDA_SUCCESS;
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) refusal = result;
      }
    }
    lock.lock();
    for (std::size_t i = 0; i < count; ++i) {
      if (!is_done[i]) continue;
      *ended = true;
      if (Block* block = pending_.finish_first(firsts[i])) complete(block);
    }
    asked += count;
  }
  return refusal;
}

// For every event that is queued now, on the host. What the driver fails to wait for stays pending.
void HostHeap::wait_for_all(Lock& lock) {
  end_captured_uses();
  if (unguarded_ != nullptr) retry_unguarded(lock);
  changed_.wait(lock, [this] { return !is_polling_; });
  if (pending_.empty()) return;
  is_polling_ = true;
  PendingFrees::Batch batch;
  pending_.take_all(batch);
  lock.unlock();
  CUresult result = CUDA_SUCCESS;
  const PendingFrees::Node* not_done = batch.first;
  while (not_done != nullptr && (result = wait_for(*not_done)) == CUDA_SUCCESS) not_done = not_done->next;
  lock.lock();
  while (batch.first != not_done)
    if (Block* block = pending_.finish_first(batch)) complete(block);
  pending_.put_back(batch);
  is_polling_ = false;
  changed_.notify_all();
  check_driver(api_, result, DriverEntryId::event_synchronize,
               [] { return std::string("an event that guards a free of host memory"); });
}

// The question disturbs no capture.
bool HostHeap::is_captured(const StreamUse& use) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // Whose handle it is the driver may say in the stream's context alone.
  const auto ask = [&] {
    return names_its_stream(contexts_, use) ? api_.stream_is_capturing(use.stream.handle, &status)
                                            : CUDA_ERROR_INVALID_CONTEXT;
  };
  CUresult result = names_its_context(use.stream) ? ask() : CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_ERROR_INVALID_CONTEXT) {
    const ContextGuard guard(api_, contexts_.primary(use.device));
    result = ask();
  }
  return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// The graph that is captured has a share in the block until it ends.
bool HostHeap::keep_for_graph(std::uint64_t address, const StreamUse& use) {
  std::unique_ptr<HostCaptures::Share> share;
  Block* block = nullptr;
  {
    const Lock lock(mutex_);
    block = live_.find(address);
    if (block == nullptr) return false;
    share = captures_.make(block);
    ++block->holds;
    api_.note_use(address, block->bytes, use.stream.handle, &kHostBlockNote);
  }
  DriverEntryId failed = DriverEntryId::ctx_set_current;
  CUresult result = CUDA_ERROR_INVALID_CONTEXT;
  try {
    const DriverScope scope(api_, contexts_.primary(use.device), true);
    result = HostCaptures::give(api_, use.stream, share, &failed);
  } catch (...) {  // as a context that cannot be entered
  }
  if (share != nullptr) {
    const Lock lock(mutex_);
    --block->holds;
    end_use(block);
  }
  check_driver(api_, result, failed, [] { return std::string("a host block that a captured graph uses"); });
  return true;
}

}  // namespace cistern
