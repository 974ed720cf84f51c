// Frees that other streams' work must precede: an event on each, recorded at the free.

#include "allocator/device_allocator.h"

namespace cistern {

// Adds a stream to those that used the block. False if nothing more has to wait for it: it
// is the block's own stream, or its work is done because there was no memory to remember it.
bool DeviceAllocator::note_use(Block* block, const StreamUse& use) {
  if (is_own_stream(*block, use)) return false;
  for (const StreamUse& known : block->uses)
    if (same_stream(known, use)) return true;
  try {
    block->uses.push_back(use);
    return true;
  } catch (...) {
    // A stream that cannot be remembered must not be forgotten: wait for it here instead.
    return api_.stream_synchronize(use.stream.handle) != CUDA_SUCCESS;
  }
}

// Every stream that used the block gets an event now, so that work queued on it later is
// not waited for. No event for the block's own stream: later work there is ordered after
// this free already. The block is nobody's until its last event is queued and done: the
// count of events is set first, and `uses` belongs to this thread.
void DeviceAllocator::free_behind_events(Block* block, Lock& lock) noexcept {
  block->state = BlockState::active_pending_free;
  block->pending_events = static_cast<std::uint32_t>(block->uses.size());
  std::size_t refused = 0;
  for (std::size_t i = 0; i < block->uses.size(); ++i) {
    PendingFrees::Entry entry{nullptr, block->uses[i].device, block->uses[i].stream.id, block};
    lock.unlock();
    const CUresult result = record_event(block->uses[i], &entry);
    lock.lock();
    if (result != CUDA_SUCCESS) {
      std::swap(block->uses[refused++], block->uses[i]);
      continue;
    }
    queue_or_wait(entry);
  }
  if (refused == 0) {
    block->uses.clear();
    // Possible already, when every event was waited for or polled meanwhile.
    if (block->pending_events == 0 && block->state == BlockState::active_pending_free) complete_free(block);
    return;
  }
  // Without an event the block cannot be reused: it stays pending, and each later request
  // tries again (retry_unrecorded_frees).
  block->uses.resize(refused);
  block->left = unrecorded_frees_;
  unrecorded_frees_ = block;
}

// Without an event in `entry`, the work is done already.
CUresult DeviceAllocator::record_event(const StreamUse& use, PendingFrees::Entry* entry) noexcept {
  try {
    const ContextGuard guard(api_, surroundings_.contexts.primary(use.device));
    CUresult result = CUDA_SUCCESS;
    if (use.stream.handle == per_thread_handle()) {
      // Another thread's default stream has no handle here: the device is waited for instead.
      StreamIdentity named_here;
      result = identify_stream(api_, use.stream.handle, &named_here);
      if (result != CUDA_SUCCESS) return result;
      if (named_here.id != use.stream.id) return api_.ctx_synchronize();
    }
    EventPool& pool = surroundings_.event_pools.of(use.device);
    result = pool.acquire(&entry->event);
    if (result != CUDA_SUCCESS) return result;
    result = api_.event_record(entry->event, use.stream.handle);
    if (result != CUDA_SUCCESS) pool.release(entry->event);
    return result;
  } catch (...) {  // the context could not be made current
    return CUDA_ERROR_INVALID_CONTEXT;
  }
}

void DeviceAllocator::queue_or_wait(const PendingFrees::Entry& entry) noexcept {
  if (entry.event == nullptr) {
    --entry.block->pending_events;
    return;
  }
  try {
    pending_.add(entry);
  } catch (...) {
    // No memory to remember the event: wait for it. If even that fails the event stays
    // unfinished for ever, and its block with it, which is safe.
    if (api_.event_synchronize(entry.event) == CUDA_SUCCESS) --entry.block->pending_events;
  }
}

void DeviceAllocator::retry_unrecorded_frees() {
  Block* block = unrecorded_frees_;
  unrecorded_frees_ = nullptr;
  while (block != nullptr) {
    Block* next = block->left;
    block->left = nullptr;
    while (!block->uses.empty()) {
      PendingFrees::Entry entry{nullptr, block->uses.back().device, block->uses.back().stream.id, block};
      if (record_event(block->uses.back(), &entry) != CUDA_SUCCESS) break;
      block->uses.pop_back();
      queue_or_wait(entry);
    }
    if (!block->uses.empty()) {
      block->left = unrecorded_frees_;
      unrecorded_frees_ = block;
    } else if (block->pending_events == 0) {
      complete_free(block);
    }
    block = next;
  }
}

}  // namespace cistern
