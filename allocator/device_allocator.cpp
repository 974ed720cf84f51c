// One malloc and one free with the heap's lock, where the stream's own does not suffice.

#include "allocator/device_allocator.h"
#include "runtime/driver_error.h"

#include <fmt/format.h>

#include <cinttypes>
#include <cstdio>
#include <utility>

namespace cistern {
namespace {

// 1 is the default as well as a value: only a text that names it means it.
bool asks_for_fraction(const AllocatorOptions& options) {
  return options.fraction_given || options.per_process_memory_fraction < 1.0;
}

}  // namespace

DeviceAllocator::DeviceAllocator(const HeapSurroundings& surroundings, int device, const AllocatorOptions& options,
                                 const HistoryOptions& history)
    : StreamHits(surroundings, device, options) {
  check_driver(api_, api_.device_total_mem(&device_total_bytes_, surroundings.contexts.driver_device(device)),
               DriverEntryId::device_total_mem, [&] { return fmt::format("device {}", device_); });
  if (options_.policy == Policy::async)
    stream_ordered_ = std::make_unique<StreamOrderedSource>(surroundings.contexts, device);
  if (options_.policy == Policy::paged) paged_ = std::make_unique<PagedMemory>(api_, *pages_, device_total_bytes_);
  record_history(HistoryOptions(history), prepare_history(history));
  recorder_.set_history(&history_);
  // Unlimited reads -1, as PyTorch shows the largest unsigned value.
  recorder_.set_max_split_size(as_signed(policy_.max_split_size()));
  if (asks_for_fraction(options)) apply_fraction(options.per_process_memory_fraction);
  choose_search();
}

// Inline in any build: stacks begin where these walks do.
template <class PoolsOf>
[[gnu::always_inline]] inline void* DeviceAllocator::allocate_from(std::size_t bytes, const StreamIdentity& stream,
                                                                   PoolsOf&& pools_of) {
  if (bytes >= kTooLarge) refuse_too_large(bytes);
  const Gathering gathers = gathering();
  const GatheredStack stack(gathers.includes(HistoryContext::state), gathers.most_frames());
  Section section(*this, stack);
  Lock& lock = section.lock;
  poll_pending(lock);
  if (!captured_frees_.empty()) complete_captured_frees(stream, lock);
  Request request = make_request(bytes);
  request.pools = &pools_of();
  return serve(request, stream, lock);
}

void* DeviceAllocator::allocate_by_heap(std::size_t bytes, StreamIdentity stream) {
  return allocate_from(bytes, stream, [&]() -> StreamHeap& {
    StreamHeap& heap = (routing_.empty() ? pools_ : route(stream)).of(stream);
    stream_heaps_.note_request(heap);
    note_thread(heap);
    if (heap.is_awake.load(std::memory_order_relaxed)) {
      consider_sharing(heap);
      arena_.provide(heap.spares);
      lend_idle_event(heap.awaited);
    }
    return heap;
  });
}

void* DeviceAllocator::allocate_in(PoolId id, std::size_t bytes, const StreamIdentity& stream) {
  return allocate_from(bytes, stream, [&]() -> StreamHeap& {
    StreamHeap& heap = used_pool(id).streams.of(stream);
    stream_heaps_.note_request(heap);
    return heap;
  });
}

inline void* DeviceAllocator::serve(Request& request, const StreamIdentity& stream, Lock& lock) {
  recorder_.reserve(request.tag);
  // A hit needs at most one new block; with it at hand nothing below can fail half way. A miss provides
  // for itself.
  arena_.reserve(1, 0);
  Block* block = nullptr;
  if (!plain_search_ && is_paged(request)) block = serve_paged(request, lock);
  if (block == nullptr) {
    block = find_free_block(request);
    if (block == nullptr || !budgets_.empty()) block = provide(block, request, lock);
    block = hand_out(block, request, lock);
  }
  void* const pointer = reinterpret_cast<void*>(block->address);
  api_.note_allocate(block->address, block->bytes, stream.handle, block->segment->owner->home);
  if (!budgets_.empty()) tell_budgets(request.tag, block->bytes, lock);
  return pointer;
}

// A free block of the request's pool that may serve it now: `found`, if its budgets allow it, or one from
// further down the ladder. It stays in its pool.
Block* DeviceAllocator::provide(Block* found, Request& request, Lock& lock) {
  request.segment_bytes = policy_.segment_bytes(request.rounded);
  Block* block = found;
  if (block != nullptr) block->segment->pool->erase(block);
  if (!budgets_.empty()) require_within_budgets(request, block, lock);
  if (block == nullptr) {
    block = serve_miss(request, lock);
    // The lock was given up: others may have used what was reserved, and what is live has changed.
    if (!budgets_.empty()) require_within_budgets(request, block, lock);
  }
  put_back(block);
  arena_.reserve(1, 0);
  return block;
}

inline DeviceAllocator::Request DeviceAllocator::make_request(std::size_t bytes) const {
  Request request;
  request.bytes = bytes;
  request.rounded = policy_.round(bytes);
  request.kind = policy_.pool(request.rounded);
  request.tag = current_tag();
  return request;
}

// Completes the frees whose events are done. A failing driver is reported to the request,
// which has changed nothing yet.
void DeviceAllocator::complete_pending(Lock& lock) {
  if (unrecorded_frees_ != nullptr) retry_unrecorded_frees(lock);
  if (capture_under_way()) return;
  if (pending_.empty()) {
    if (leftovers_) release_leftovers(lock);
    return;
  }
  CUresult result = std::exchange(failed_query_, CUDA_SUCCESS);
  const auto poll = [&] { return pending_.poll([&](Block* block) { complete_free(block, lock); }); };
  // An event has a context of its own: none need be current, unless the driver says so.
  if (result == CUDA_SUCCESS) result = routing_.empty() ? poll() : CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_ERROR_INVALID_CONTEXT) {
    const DriverScope scope(api_, context_, !routing_.empty());
    result = poll();
  }
  if (leftovers_) release_leftovers(lock);
  release_idle(lock);
  check_driver(api_, result, DriverEntryId::event_query,
               [&] { return fmt::format("an event that guards a free on device {}", device_); });
}

bool DeviceAllocator::free_by_heap(std::uint64_t address) noexcept {
  if (free(address, nullptr)) return true;
  api_.note_free(address, 0, nullptr);
  return false;
}

bool DeviceAllocator::free(std::uint64_t address, const StreamUse* last_use) noexcept {
  const Gathering gathers = gathering();
  const GatheredStack stack(gathers.includes(HistoryContext::all), gathers.most_frames());
  Section section(*this, stack);
  Lock& lock = section.lock;
  Block* block = find_live(address);
  if (block == nullptr) return false;
  if (last_use != nullptr) [[unlikely]] {
    if (!note_use(block, *last_use, lock)) {
      std::fprintf(stderr,
                   "cistern: deallocate(%#" PRIx64
                   "): its last stream can neither be guarded nor waited for; "
                   "the block stays allocated\n",
                   address);
      return true;
    }
    // The lock may have been given up: another thread's free of the same address is found here.
    if (find_live(address) != block) return false;
  }
  if (block->is_held) return !std::exchange(block->freed_while_held, true);
  map_of(*block).erase(address);
  // Before the block can serve another request.
  api_.note_free(address, block->bytes, block->segment->stream.handle);
  if (!block->has_uses && stays_cached(*block->segment)) {
    free_unawaited(block, lock);
    return true;
  }
  recorder_.free_requested(block->segment->kind, as_signed(block->bytes), block->oversize, attribution(*block),
                           [&] { return point_of(*block, lock); });
  if (!block->segment->is_plain)
    free_in_pool(block, lock);
  else
    free_behind_events(block, lock);
  return true;
}

// A block that no other stream used is free at once: no event, and no room below the peaks is asked for.
void DeviceAllocator::free_unawaited(Block* block, Lock& lock) noexcept {
  recorder_.trace_freed([&] { return point_of(*block, lock); });
  const bool is_private = block->segment->owner->home != nullptr;
  free_any_at_once(block);
  // Not by who frees ordinary blocks: to give memory back may wait for the device.
  if (is_private && leftovers_) release_leftovers(lock);
}

// The rest of a free of a private pool's block, or one in an expandable segment or paged memory, that other streams
// used; or under `direct` or `async`. Only cuMemFree waits for what other streams do.
void DeviceAllocator::free_in_pool(Block* block, Lock& lock) noexcept {
  PrivatePool* home = block->segment->owner->home;
  if (block->segment->is_paged()) {
    paged_->placement.freed(PagedMemory::place_of(*block));
  } else if (home == nullptr && block->segment->range == nullptr && !(is_stream_ordered() && block->has_uses)) {
    release_uncached(block, lock);
    return;
  }
  if (home != nullptr) home->recorder.free_requested(block->segment->kind, as_signed(block->bytes), block->oversize);
  free_behind_events(block, lock);
  if (leftovers_) release_leftovers(lock);
  release_idle(lock);
}

bool DeviceAllocator::record_use(std::uint64_t address, StreamUse& use) {
  if (record_use_by_stream(address, use)) return true;
  const Lock lock(mutex_);
  Block* block = find_live(address);
  if (block == nullptr) return false;
  add_use(block, std::move(use));
  return true;
}

}  // namespace cistern
