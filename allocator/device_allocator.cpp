#include "allocator/device_allocator.h"

#include "allocator/range_search.h"
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

bool needs_pages(const AllocatorOptions& options) {
  return options.policy == Policy::expandable || options.policy == Policy::paged;
}

bool caches(Policy policy) { return policy != Policy::direct && policy != Policy::async; }

}  // namespace

void say_nothing_was_freed(std::uint64_t address) noexcept {
  std::fprintf(stderr, "cistern: deallocate(%#" PRIx64 "): not the address of a live block; nothing was freed\n",
               address);
}

DeviceAllocator::DeviceAllocator(const HeapSurroundings& surroundings, int device, const AllocatorOptions& options,
                                 const HistoryOptions& history)
    : api_(surroundings.contexts.api()),
      surroundings_(surroundings),
      device_(device),
      context_(surroundings.contexts.primary(device)),
      source_(api_),
      pages_(needs_pages(options) ? PageSource::make(api_, surroundings.contexts.driver_device(device)) : nullptr),
      options_(served(options)),
      policy_(options_),
      caches_(caches(options.policy)),
      pending_(api_, surroundings.event_pools, device) {
  check_driver(api_, api_.device_total_mem(&device_total_bytes_, surroundings.contexts.driver_device(device)),
               DriverEntryId::device_total_mem, [&] { return fmt::format("device {}", device_); });
  if (options_.policy == Policy::async)
    stream_ordered_ = std::make_unique<StreamOrderedSource>(api_, device, surroundings.contexts.driver_device(device));
  if (options_.policy == Policy::paged) paged_ = std::make_unique<PagedMemory>(api_, *pages_, device_total_bytes_);
  record_history(HistoryOptions(history), prepare_history(history));
  recorder_.set_history(&history_);
  // Unlimited reads -1, as PyTorch shows the largest unsigned value.
  recorder_.set_max_split_size(as_signed(policy_.max_split_size()));
  if (asks_for_fraction(options)) apply_fraction(options.per_process_memory_fraction);
  choose_search();
}

// As far as the device can: without virtual memory management segments do not expand, and there are no pages.
AllocatorOptions DeviceAllocator::served(AllocatorOptions options) const {
  if (needs_pages(options) && pages_ == nullptr) options.policy = Policy::classic;
  return options;
}

void* DeviceAllocator::allocate_by_heap(std::size_t bytes, const StreamIdentity& stream) {
  if (bytes >= kTooLarge) refuse_too_large(bytes);
  const Gathering gathers = gathering();
  const GatheredStack stack(gathers.includes(HistoryContext::state), gathers.most_frames());
  Section section(*this, stack);
  Lock& lock = section.lock;
  poll_pending(lock);
  if (!captured_frees_.empty()) complete_captured_frees(stream, lock);
  Request request = make_request(bytes);
  request.pools = &(routing_.empty() ? pools_ : route(stream)).of(stream);
  stream_heaps_.note_request(*request.pools);
  if (request.pools->is_awake.load(std::memory_order_relaxed)) arena_.provide(request.pools->spares);
  request.pools->allocates.store(ThreadMark::of_this_thread(), std::memory_order_relaxed);
  return serve(request, stream, lock);
}

void* DeviceAllocator::allocate_in(PoolId id, std::size_t bytes, const StreamIdentity& stream) {
  if (bytes >= kTooLarge) refuse_too_large(bytes);
  const Gathering gathers = gathering();
  const GatheredStack stack(gathers.includes(HistoryContext::state), gathers.most_frames());
  Section section(*this, stack);
  Lock& lock = section.lock;
  poll_pending(lock);
  if (!captured_frees_.empty()) complete_captured_frees(stream, lock);
  Request request = make_request(bytes);
  request.pools = &used_pool(id).streams.of(stream);
  return serve(request, stream, lock);
}

inline void* DeviceAllocator::serve(Request& request, const StreamIdentity& stream, Lock& lock) {
  recorder_.reserve(request.tag);
  // A hit needs at most one new block; with it at hand nothing below can fail half way. A miss provides
  // for itself.
  arena_.reserve(1, 0);
  Block* block = nullptr;
  if (!plain_search_ && is_paged(request)) {
    block = serve_paged(request, lock);
  } else {
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
  if (pending_.empty() || capture_under_way()) return;
  CUresult result = CUDA_SUCCESS;
  {
    const DriverScope scope(api_, context_, !routing_.empty());
    result = pending_.poll([&](Block* block) { complete_free(block, lock); });
  }
  if (leftovers_) release_leftovers(lock);
  release_idle(lock);
  check_driver(api_, result, DriverEntryId::event_query,
               [&] { return fmt::format("an event that guards a free on device {}", device_); });
}

inline Block* DeviceAllocator::find_free_block(const Request& request) {
  // What `direct` has in its pools are segments that the driver refused to take back; but a
  // private pool caches, since its memory must stay as long as a graph may use it.
  if (!plain_search_ && !caches_ && request.pools->home == nullptr) return nullptr;
  if (collects_garbage() && request.pools->home == nullptr) ++searches_[static_cast<std::size_t>(request.kind)];
  BlockPool& pool = request.pools->of(request.kind);
  Block* block = pool.best_fit(request.rounded);
  if (!plain_search_) block = choose_beside_ranges(pool, block, options_.policy == Policy::expandable);
  if (block == nullptr || !policy_.may_serve(block->bytes, request.rounded)) return nullptr;
  return block;
}

Block* DeviceAllocator::take_free_block(const Request& request) {
  Block* block = find_free_block(request);
  if (block != nullptr) block->segment->pool->erase(block);
  return block;
}

// Requires: the block is in its pool, and one is reserved in the arena. Throws std::bad_alloc, unchanged.
inline Block* DeviceAllocator::hand_out(Block* block, const Request& request, const Lock& lock) {
  map_of(*block->segment).make_room();
  const bool splits = should_split(*block, request);
  return take_into_use(block, request, splits ? request.rounded : block->bytes, lock);
}

// A block from another pool, as take_from_overflow left it. Throws std::bad_alloc; it is free then.
Block* DeviceAllocator::hand_out_overflow(Block* block, const Request& request, const Lock& lock) {
  put_back(block);
  arena_.reserve(1, 0);
  return hand_out(block, request, lock);
}

// Takes so many bytes at the low end of a free block into use. The free rest stays next to the segment's
// untouched end. Requires: the block is in its pool; one is reserved in the arena if it splits, and there is
// room in the block map.
Block* DeviceAllocator::take_into_use(Block* free, const Request& request, std::size_t bytes, const Lock& lock) {
  const bool is_plain = free->segment->is_plain;
  InactiveSplitChange change;
  if (is_plain || free->segment->range == nullptr) change = change_by_taking(*free, bytes);
  Block* block = take_front(free, bytes, *free->segment->pool, arena_.spares());
  block->kind = free->segment->kind;
  begin_use(block, request, change, lock);
  if (!is_plain) {
    if (PrivatePool* home = block->segment->owner->home)
      home->recorder.block_allocated(request.kind, as_signed(bytes), as_signed(request.bytes), change, block->oversize);
  }
  return block;
}

// Requires: there is room in the block map.
inline void DeviceAllocator::begin_use(Block* block, const Request& request, const InactiveSplitChange& change,
                                       const Lock& lock) noexcept {
  map_of(*block->segment).insert(block->address, block);
  block->state = BlockState::active_allocated;
  block->requested = request.bytes;
  block->tag = request.tag;
  block->oversize = policy_.is_oversize(block->bytes);
  block->stack = history_.keep(lock.stack);
  recorder_.block_allocated(request.kind, as_signed(block->bytes), as_signed(request.bytes), change, block->oversize,
                            attribution(*block), [&] { return point_of(*block, lock); });
}

// Requires: a block and room in the block map are reserved.
Block* DeviceAllocator::hand_out(const PagedBlock& place, const Request& request, const Lock& lock) noexcept {
  Block* block = arena_.take_block();
  paged_->attach(*block, place);
  Request counted = request;
  counted.kind = block->segment->kind;
  begin_use(block, counted, {}, lock);
  return block;
}

// Cuts what is behind `bytes` off a block in no pool, and puts it in its pool. Requires: a block is reserved.
void DeviceAllocator::split(Block* block, std::size_t bytes) { put_in_pool(cut_back(block, bytes, arena_.spares())); }

Block* DeviceAllocator::find_live(std::uint64_t address) const noexcept {
  if (const StreamHeap* heap = stream_heaps_.find_by_page(address))
    if (Block* block = heap->live.find(address)) return block;
  return block_map_.find(address);
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
  if (block->holds != 0) return !std::exchange(block->freed_while_held, true);
  map_of(*block->segment).erase(address);
  // Before the block can serve another request.
  api_.note_free(address, block->bytes, block->segment->stream.handle);
  if (block->segment->is_plain && !block->has_uses) {
    complete_plain_free(block, lock);
    return true;
  }
  if (block->segment->is_paged() && !block->has_uses) {
    free_paged_at_once(block, lock);
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

// The rest of a free of a private pool's block, or one in an expandable segment or paged memory, or under `direct` or
// `async`. Only cuMemFree waits for what other streams do.
void DeviceAllocator::free_in_pool(Block* block, Lock& lock) noexcept {
  PrivatePool* home = block->segment->owner->home;
  if (block->segment->is_paged()) {
    paged_->placement.freed(paged_->place_of(*block));
  } else if (home == nullptr && block->segment->range == nullptr && !(is_stream_ordered() && block->has_uses)) {
    release_uncached(block, lock);
    return;
  }
  if (home != nullptr) home->recorder.free_requested(block->segment->kind, as_signed(block->bytes), block->oversize);
  if (!block->has_uses)
    static_cast<void>(complete_free(block, lock));
  else
    free_behind_events(block, lock);
  if (leftovers_) release_leftovers(lock);
  release_idle(lock);
}

inline void DeviceAllocator::complete_plain_free(Block* block, const Lock& lock) {
  recorder_.trace_freed([&] { return point_of(*block, lock); });
  free_at_once(block);
}

void DeviceAllocator::free_at_once(Block* block) {
  const std::size_t bytes = block->bytes;
  const std::size_t requested = block->requested;
  const bool oversize = block->oversize;
  const Attribution of = attribution(*block);
  const InactiveSplitChange change = change_by_freeing(*block, FreeNeighbours(*block));
  const Block* settled = settle(block);
  recorder_.freed(settled->segment->kind, as_signed(bytes), as_signed(requested), change, oversize, of);
}

// Returns the free block that it is, or is a part of, now; null for paged memory, where there are none.
Block* DeviceAllocator::complete_free(Block* block, const Lock& lock) {
  if (block->segment->is_paged()) return complete_paged_free(block, lock);
  recorder_.trace(TraceAction::free_completed, [&] { return point_of(*block, lock); });
  const std::size_t bytes = block->bytes;
  const std::size_t requested = block->requested;
  const Attribution of = attribution(*block);
  const std::uint64_t grant = block->freed_in_grant;
  // Whole pages of an expandable segment can always be given back.
  InactiveSplitChange change;
  if (block->segment->range == nullptr) change = change_by_freeing(*block, FreeNeighbours(*block));
  Block* settled = settle(block);
  const PoolKind kind = settled->segment->kind;
  recorder_.free_completed(kind, as_signed(bytes), as_signed(requested), change, of, grant);
  PrivatePool* home = settled->segment->owner->home;
  if (home == nullptr) {
    has_idle_ = is_stream_ordered();
    return settled;
  }
  home->recorder.free_completed(kind, as_signed(bytes), as_signed(requested), change);
  if (home->is_freeable() && home->settings.ends_by_itself && !settled->is_split()) leftovers_ = true;
  return settled;
}

// Puts a block whose free is complete into its pool. Returns the block that it is a part of.
Block* DeviceAllocator::settle(Block* block) {
  if (std::exchange(block->has_uses, false)) retire(block->uses, *block->segment->owner);
  history_.let_go(block->stack);
  Block* settled = put_free(block, FreeNeighbours(*block), *block->segment->pool, arena_.spares());
  note_age(*settled);
  return settled;
}

void DeviceAllocator::put_in_pool(Block* block) {
  block->state = BlockState::inactive;
  note_age(*block);
  block->segment->pool->insert(block);
}

// Undoes take_free_block, or keeps what a new segment brought.
void DeviceAllocator::put_back(Block* block) { block->segment->pool->insert(block); }

bool DeviceAllocator::record_use(std::uint64_t address, StreamUse& use) {
  if (record_use_by_stream(address, use)) return true;
  const Lock lock(mutex_);
  Block* block = find_live(address);
  if (block == nullptr) return false;
  add_use(block, std::move(use));
  return true;
}

bool DeviceAllocator::owns(std::uint64_t address) const noexcept {
  const Lock lock(mutex_);
  return find_live(address) != nullptr;
}

void DeviceAllocator::prepare(const AllocatorOptions& options) {
  if (options.policy == Policy::async) prepare_driver_pool();
  if (!needs_pages(options)) return;
  const bool is_paged = options.policy == Policy::paged;
  {
    const Lock lock(mutex_);
    if (pages_ != nullptr && (!is_paged || paged_ != nullptr)) return;
  }
  auto pages = PageSource::make(api_, surroundings_.contexts.driver_device(device_));
  {
    const Lock lock(mutex_);
    if (pages_ == nullptr) pages_ = std::move(pages);
  }
  if (!is_paged || pages_ == nullptr) return;
  auto paged = std::make_unique<PagedMemory>(api_, *pages_, device_total_bytes_);
  const Lock lock(mutex_);
  if (paged_ == nullptr) paged_ = std::move(paged);
}

bool DeviceAllocator::can_serve(const AllocatorOptions& options) const {
  const Lock lock(mutex_);
  return can_serve_while_locked(options);
}

bool DeviceAllocator::can_serve_while_locked(const AllocatorOptions& options) const noexcept {
  return !needs_pages(options) || pages_ != nullptr;
}

// Requires: valid options, which prepare has seen. Takes no host memory: all devices change or none.
void DeviceAllocator::set_options(AllocatorOptions&& options) noexcept {
  const Lock lock(mutex_);
  options = served(std::move(options));
  std::swap(options_, options);  // the old ones end without the lock
  policy_ = SizePolicy(options_);
  choose_search();
  caches_ = caches(options_.policy);
  if (options_.fraction_given) apply_fraction(options_.per_process_memory_fraction);
}

void DeviceAllocator::set_memory_fraction(double fraction) {
  const Lock lock(mutex_);
  apply_fraction(fraction);
}

void DeviceAllocator::apply_fraction(double fraction) {
  if (!(fraction >= 0.0 && fraction <= 1.0))
    throw InvalidArgument(fmt::format("memory fraction {}: expected a number from 0 to 1", fraction));
  fraction_ = fraction;
  // From 2.5 on PyTorch takes 1.0 as "no limit"; 2.4 limits to the device's total.
  const bool limited = fraction < 1.0 || options_.pytorch_rules == PytorchRules::v2_4;
  limit_bytes_ = limited ? static_cast<std::size_t>(fraction * static_cast<double>(device_total_bytes_)) : kUnlimited;
}

double DeviceAllocator::memory_fraction() const {
  const Lock lock(mutex_);
  return fraction_;
}

MemoryStats DeviceAllocator::stats(ReservedByPrivatePool* pools) const {
  const Lock lock(mutex_);
  if (pools != nullptr && !follows_2_4()) {
    private_pools_.for_each([&](const PrivatePool& pool) {
      pools->emplace(std::pair(pool.id.first, pool.id.second), pool.reserved.stats().reserved_bytes);
    });
  }
  return recorder_.stats();
}

MemoryStats DeviceAllocator::pool_stats(PoolId id) const {
  const Lock lock(mutex_);
  return used_pool(id).recorder.stats();
}

void DeviceAllocator::reset_pool_peaks(PoolId id) {
  const Lock lock(mutex_);
  used_pool(id).recorder.reset_peaks();
}

void DeviceAllocator::reset_peak_stats() {
  const Lock lock(mutex_);
  recorder_.reset_peaks();
  private_pools_.for_each([](PrivatePool& pool) { pool.reserved.reset_peaks(); });
}

void DeviceAllocator::reset_accumulated_stats() {
  const Lock lock(mutex_);
  recorder_.reset_accumulated();
  private_pools_.for_each([](PrivatePool& pool) { pool.reserved.reset_accumulated(); });
}

}  // namespace cistern
