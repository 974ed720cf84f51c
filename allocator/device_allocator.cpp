#include "allocator/device_allocator.h"

#include "allocator/range_search.h"
#include "runtime/driver_error.h"

#include <fmt/format.h>

#include <cinttypes>
#include <cstdio>
#include <utility>

namespace cistern {
namespace {

std::int64_t as_signed(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

// 1 is the default as well as a value: only a text that names it means it.
bool asks_for_fraction(const AllocatorOptions& options) {
  return options.fraction_given || options.per_process_memory_fraction < 1.0;
}

}  // namespace

DeviceAllocator::DeviceAllocator(const HeapSurroundings& surroundings, int device, const AllocatorOptions& options,
                                 const HistoryOptions& history)
    : api_(surroundings.contexts.api()),
      surroundings_(surroundings),
      device_(device),
      context_(surroundings.contexts.primary(device)),
      source_(api_),
      pages_(options.policy == Policy::expandable ? PageSource::make(api_, surroundings.contexts.driver_device(device))
                                                  : nullptr),
      options_(served(options)),
      policy_(options_),
      caches_(options.policy != Policy::direct),
      pending_(api_, surroundings.event_pools) {
  check_driver(api_, api_.device_total_mem(&device_total_bytes_, surroundings.contexts.driver_device(device)),
               DriverEntryId::device_total_mem, [&] { return fmt::format("device {}", device_); });
  record_history(HistoryOptions(history), prepare_history(history));
  recorder_.set_history(&history_);
  // Unlimited reads -1, as PyTorch shows the largest unsigned value.
  recorder_.set_max_split_size(as_signed(policy_.max_split_size()));
  if (asks_for_fraction(options)) apply_fraction(options.per_process_memory_fraction);
  choose_search();
}

// As far as the device can: without virtual memory management segments do not expand.
AllocatorOptions DeviceAllocator::served(AllocatorOptions options) const {
  if (options.policy == Policy::expandable && pages_ == nullptr) options.policy = Policy::classic;
  return options;
}

void* DeviceAllocator::allocate(std::size_t bytes, const StreamIdentity& stream) {
  if (bytes >= kTooLarge) refuse_too_large(bytes);
  const Gathering gathers = gathering();
  const GatheredStack stack(gathers.includes(HistoryContext::state), gathers.most_frames());
  Section section(*this, stack);
  Lock& lock = section.lock;
  // A hit needs at most one new block; with it at hand nothing below can fail half way. A miss provides
  // for itself.
  arena_.reserve(1, 0);
  poll_pending(lock);
  if (!captured_frees_.empty()) complete_captured_frees(stream, lock);
  Request request = make_request(bytes);
  request.pools = &(routing_.empty() ? pools_ : route(stream)).of(stream);
  return serve(request, stream, lock);
}

void* DeviceAllocator::allocate_in(PoolId id, std::size_t bytes, const StreamIdentity& stream) {
  if (bytes >= kTooLarge) refuse_too_large(bytes);
  const Gathering gathers = gathering();
  const GatheredStack stack(gathers.includes(HistoryContext::state), gathers.most_frames());
  Section section(*this, stack);
  Lock& lock = section.lock;
  arena_.reserve(1, 0);
  poll_pending(lock);
  if (!captured_frees_.empty()) complete_captured_frees(stream, lock);
  Request request = make_request(bytes);
  request.pools = &used_pool(id).streams.of(stream);
  return serve(request, stream, lock);
}

inline void* DeviceAllocator::serve(const Request& request, const StreamIdentity& stream, Lock& lock) {
  recorder_.reserve(request.tag);
  Block* block = take_free_block(request);
  if (!budgets_.empty()) require_within_budgets(request, block, lock);
  if (block == nullptr) {
    block = serve_miss(request, lock);
    // The lock was given up: others may have used what was reserved, and what is live has changed.
    if (!budgets_.empty()) require_within_budgets(request, block, lock);
    try {
      arena_.reserve(1, 0);
    } catch (...) {
      put_back(block);
      throw;
    }
  }
  hand_out(block, request, lock);
  void* const pointer = reinterpret_cast<void*>(block->address);
  api_.note_allocate(block->address, block->bytes, stream.handle, block->segment->owner->home);
  if (!budgets_.empty()) tell_budgets(request.tag, block->bytes, lock);
  return pointer;
}

DeviceAllocator::Request DeviceAllocator::make_request(std::size_t bytes) const {
  Request request;
  request.bytes = bytes;
  request.rounded = policy_.round(bytes);
  request.segment_bytes = policy_.segment_bytes(request.rounded);
  request.kind = policy_.pool(request.rounded);
  request.tag = current_tag();
  return request;
}

// Completes the frees whose events are done. A failing driver is reported to the request,
// which has changed nothing yet.
void DeviceAllocator::poll_pending(Lock& lock) {
  if (unrecorded_frees_ != nullptr) retry_unrecorded_frees(lock);
  if (pending_.empty() || capture_under_way()) return;
  CUresult result = CUDA_SUCCESS;
  {
    const DriverScope scope(api_, context_, !routing_.empty());
    result = pending_.poll([&](Block* block) { complete_free(block, lock); });
  }
  if (leftovers_) release_leftovers(lock);
  check_driver(api_, result, DriverEntryId::event_query,
               [&] { return fmt::format("an event that guards a free on device {}", device_); });
}

Block* DeviceAllocator::take_free_block(const Request& request) {
  // What `direct` has in its pools are segments that the driver refused to take back; but a
  // private pool caches, since its memory must stay as long as a graph may use it.
  if (!plain_search_ && !caches_ && request.pools->home == nullptr) return nullptr;
  if (collects_garbage() && request.pools->home == nullptr) ++searches_[static_cast<std::size_t>(request.kind)];
  BlockPool& pool = request.pools->of(request.kind);
  Block* block = pool.best_fit(request.rounded);
  if (!plain_search_) block = choose_beside_ranges(pool, block, options_.policy == Policy::expandable);
  if (block == nullptr || !policy_.may_serve(block->bytes, request.rounded)) return nullptr;
  pool.erase(block);
  return block;
}

// Requires: one block is reserved in the arena.
void DeviceAllocator::hand_out(Block* block, const Request& request, const Lock& lock) {
  try {
    block_map_.insert(block->address, block);
  } catch (...) {
    put_back(block);
    throw;
  }
  take_into_use(block, request, should_split(*block, request), lock);
}

// Requires: one block is reserved in the arena if it splits, and an entry in the block map.
void DeviceAllocator::take_into_use(Block* block, const Request& request, bool splits, const Lock& lock) {
  const bool was_split = block->is_split();
  InactiveSplitChange change;
  if (splits)
    change = split(block, request.rounded);
  else if (was_split)
    change = {-1, -as_signed(block->bytes)};
  block->state = BlockState::active_allocated;
  block->requested = request.bytes;
  block->tag = request.tag;
  block->oversize = policy_.is_oversize(block->bytes);
  const bool is_plain = block->segment->is_plain;
  if (!is_plain && block->segment->range != nullptr) change = {};
  block->stack = history_.keep(lock.stack);
  recorder_.block_allocated(request.kind, as_signed(block->bytes), as_signed(request.bytes), change, block->oversize,
                            attribution(*block), point_of(*block, lock));
  if (!is_plain) {
    if (PrivatePool* home = block->segment->owner->home)
      home->recorder.block_allocated(request.kind, as_signed(block->bytes), as_signed(request.bytes), change,
                                     block->oversize);
  }
}

// Cuts what the request does not need off the block's end. The request stays at the low
// address, so that the free rest stays next to the segment's untouched end.
InactiveSplitChange DeviceAllocator::split(Block* block, std::size_t bytes) {
  const bool was_split = block->is_split();
  Block* rest = arena_.take_block();
  rest->address = block->address + bytes;
  rest->bytes = block->bytes - bytes;
  rest->segment = block->segment;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr)
    rest->next->previous = rest;
  else
    rest->segment->last = rest;
  block->next = rest;
  block->bytes = bytes;
  put_in_pool(rest);
  return was_split ? InactiveSplitChange{0, -as_signed(bytes)} : InactiveSplitChange{1, as_signed(rest->bytes)};
}

bool DeviceAllocator::free(std::uint64_t address, const StreamUse* last_use) noexcept {
  const Gathering gathers = gathering();
  const GatheredStack stack(gathers.includes(HistoryContext::all), gathers.most_frames());
  Section section(*this, stack);
  Lock& lock = section.lock;
  Block* block = block_map_.find(address);
  if (block == nullptr) return false;
  if (last_use != nullptr) {
    if (!note_use(block, *last_use, lock)) {
      std::fprintf(stderr,
                   "cistern: deallocate(%#" PRIx64
                   "): its last stream can neither be guarded nor waited for; "
                   "the block stays allocated\n",
                   address);
      return true;
    }
    // The lock may have been given up: another thread's free of the same address is found here.
    if (block_map_.find(address) != block) return false;
  }
  if (block->holds != 0) return !std::exchange(block->freed_while_held, true);
  static_cast<void>(block_map_.take(address));
  // Before the block can serve another request.
  api_.note_free(address, block->bytes, block->segment->stream.handle);
  if (block->segment->is_plain && block->uses.empty()) {
    complete_plain_free(block, lock);
    return true;
  }
  recorder_.free_requested(block->segment->kind, as_signed(block->bytes), block->oversize, attribution(*block),
                           point_of(*block, lock));
  if (!block->segment->is_plain)
    free_in_pool(block, lock);
  else
    free_behind_events(block, lock);
  return true;
}

// The rest of a free of a private pool's or an expandable segment's block, or under `direct`.
void DeviceAllocator::free_in_pool(Block* block, Lock& lock) noexcept {
  PrivatePool* home = block->segment->owner->home;
  if (home == nullptr && block->segment->range == nullptr) {
    release_uncached(block, lock);
    return;
  }
  if (home != nullptr) home->recorder.free_requested(block->segment->kind, as_signed(block->bytes), block->oversize);
  if (block->uses.empty())
    complete_free(block, lock);
  else
    free_behind_events(block, lock);
  if (leftovers_) release_leftovers(lock);
}

// The place is the block's before it is merged.
inline void DeviceAllocator::complete_plain_free(Block* block, const Lock& lock) {
  const TracePoint at = point_of(*block, lock);
  const std::size_t bytes = block->bytes;
  const bool oversize = block->oversize;
  const Attribution of = attribution(*block);
  const InactiveSplitChange change = settle(block);
  recorder_.freed(block->segment->kind, as_signed(bytes), at.size, change, oversize, of, at);
}

void DeviceAllocator::complete_free(Block* block, const Lock& lock) {
  const TracePoint at = point_of(*block, lock);
  const std::size_t bytes = block->bytes;
  const PoolKind kind = block->segment->kind;
  InactiveSplitChange change = settle(block);
  // Whole pages of an expandable segment can always be given back.
  if (block->segment->range != nullptr) change = {};
  recorder_.free_completed(kind, as_signed(bytes), as_signed(block->requested), change, attribution(*block), at);
  PrivatePool* home = block->segment->owner->home;
  if (home == nullptr) return;
  home->recorder.free_completed(kind, as_signed(bytes), as_signed(block->requested), change);
  if (home->is_freeable() && home->settings.ends_by_itself && !block->is_split()) leftovers_ = true;
}

// Puts a block whose free is complete into its pool, merged with its free neighbours.
InactiveSplitChange DeviceAllocator::settle(Block* block) {
  InactiveSplitChange change;
  for (Block* neighbour : {block->previous, block->next}) {
    if (const std::size_t merged = merge(block, neighbour); merged != 0) {
      --change.count;
      change.bytes -= as_signed(merged);
    }
  }
  retire_uses(block, 0);
  history_.let_go(block->stack);
  put_in_pool(block);
  if (block->is_split()) {
    ++change.count;
    change.bytes += as_signed(block->bytes);
  }
  return change;
}

// Takes a free neighbour into `block`; returns its size, or 0 if it is in use or absent.
std::size_t DeviceAllocator::merge(Block* block, Block* neighbour) {
  if (neighbour == nullptr || neighbour->state != BlockState::inactive) return 0;
  neighbour->segment->pool->erase(neighbour);
  if (neighbour == block->previous) {
    block->address = neighbour->address;
    block->previous = neighbour->previous;
    if (block->previous != nullptr)
      block->previous->next = block;
    else
      block->segment->first = block;
  } else {
    block->next = neighbour->next;
    if (block->next != nullptr)
      block->next->previous = block;
    else
      block->segment->last = block;
  }
  const std::size_t bytes = neighbour->bytes;
  block->bytes += bytes;
  arena_.give_back(neighbour);
  return bytes;
}

void DeviceAllocator::put_in_pool(Block* block) {
  block->state = BlockState::inactive;
  block->free_since = searches_[static_cast<std::size_t>(block->segment->kind)];
  block->segment->pool->insert(block);
}

// Undoes take_free_block, or keeps a new segment that could not be handed out.
void DeviceAllocator::put_back(Block* block) { block->segment->pool->insert(block); }

bool DeviceAllocator::record_use(std::uint64_t address, const StreamUse& use) {
  const Lock lock(mutex_);
  Block* block = block_map_.find(address);
  if (block == nullptr) return false;
  add_use(block, use);
  return true;
}

bool DeviceAllocator::owns(std::uint64_t address) const noexcept {
  const Lock lock(mutex_);
  return block_map_.find(address) != nullptr;
}

void DeviceAllocator::prepare(const AllocatorOptions& options) {
  if (options.policy != Policy::expandable) return;
  {
    const Lock lock(mutex_);
    if (pages_ != nullptr) return;
  }
  auto pages = PageSource::make(api_, surroundings_.contexts.driver_device(device_));
  const Lock lock(mutex_);
  if (pages_ == nullptr) pages_ = std::move(pages);
}

bool DeviceAllocator::can_serve(const AllocatorOptions& options) const {
  const Lock lock(mutex_);
  return options.policy != Policy::expandable || pages_ != nullptr;
}

// Requires: valid options, which prepare has seen. Takes no host memory: all devices change or none.
void DeviceAllocator::set_options(AllocatorOptions&& options) noexcept {
  const Lock lock(mutex_);
  options = served(std::move(options));
  std::swap(options_, options);  // the old ones end without the lock
  policy_ = SizePolicy(options_);
  choose_search();
  caches_ = options_.policy != Policy::direct;
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
