// Address ranges change hands: to the heirs of a pool, from streams that are over, and their memory
// is opened to other devices.

#include "allocator/address_range.h"
#include "allocator/device_allocator.h"
#include "runtime/driver_error.h"

#include <fmt/format.h>

#include <algorithm>

namespace cistern {

// Requires: the range is wholly free, its blocks in no pool and its segments marked as on their way.
void DeviceAllocator::move_range(AddressRange& range, StreamHeap& to) noexcept {
  PrivatePool* from = range.owner->home;
  --range.owner->references;
  ++to.references;
  range.owner = &to;
  for (Segment* segment : range.segments) {
    const auto bytes = static_cast<std::int64_t>(segment->bytes);
    if (from != to.home) {
      if (from != nullptr) from->pages_left(segment->kind, bytes);
      if (to.home != nullptr) to.home->pages_arrived(segment->kind, bytes);
    }
    segment->owner = &to;
    segment->pool = &to.of(segment->kind);
    segment->stream = to.stream;
    if (!segment->is_found_by_page) to.has_hidden_segments = true;
  }
}

// Nobody's, until it is opened again. Requires: it is wholly free.
void DeviceAllocator::close_range(const AddressRange& range) noexcept {
  for (Segment* segment : range.segments) {
    segment->pool->erase(segment->first);
    segment->releasing = true;
    if (segment->is_found_by_page) stream_heaps_.remove_pages(*segment);
  }
}

void DeviceAllocator::open_range(const AddressRange& range) noexcept {
  for (Segment* segment : range.segments) {
    segment->releasing = false;
    if (segment->is_found_by_page) stream_heaps_.put_pages(*segment);
    segment->pool->insert(segment->first);
  }
}

// A wholly free range of a stream that is over, whose memory serves the request, as far as it goes.
Block* DeviceAllocator::take_over_range(const Request& request, Lock& lock) {
  AddressRange* range = ranges_;
  for (; range != nullptr; range = range->next) {
    const StreamHeap& owner = *range->owner;
    if (owner.end != nullptr && owner.home == request.pools->home && range->kind == request.kind &&
        !range->segments.empty() && range->is_wholly_free())
      break;
  }
  if (range == nullptr) return nullptr;
  close_range(*range);
  const bool ordered = order_behind(range->owner->end, request, lock);
  if (ordered) move_range(*range, *request.pools);
  open_range(*range);
  return ordered ? take_free_block(request) : nullptr;
}

// Ranges of a pool without a use go to its heir, when they are wholly free.
void DeviceAllocator::move_leftover_ranges(const RangeFilter& chosen, PrivatePool& heir) {
  for (AddressRange* range = ranges_; range != nullptr; range = range->next) {
    if (!chosen(*range) || range->segments.empty() || !range->is_wholly_free() || range->owner->is_ended) continue;
    StreamHeap& pools = heir.streams.of(range->owner->stream);
    close_range(*range);
    move_range(*range, pools);
    open_range(*range);
  }
}

std::optional<DeviceAllocator::BlockPages> HeapReports::pages_of(std::uint64_t address) const {
  const HeapLook look(mutex_);
  const Block* block = find_live(address);
  if (block == nullptr || block->freed_while_held) return std::nullopt;
  BlockPages found;
  found.bytes = block->requested;
  found.is_paged = block->segment->is_paged();
  const AddressRange* range = block->segment->range;
  found.is_stream_ordered = is_stream_ordered() && range == nullptr && block->segment->owner->home == nullptr;
  if (range == nullptr) return found;
  const std::uint64_t first = range->page_at_or_before(address);
  found.pages = {first, range->page_at_or_after(address + block->bytes) - first, range->page_bytes};
  found.offset = address - first;
  found.shareable = !follows_2_4();
  return found;
}

// Lets another device use what is mapped, and what will be. Throws DriverError: it may then use some
// of it, and a later call tries all again.
void DeviceAllocator::allow_peer(CUdevice peer) {
  Lock lock(mutex_);
  // A map that is under way reads the peers without the lock.
  reclaimed_.wait(lock, [this] { return !grants_access_ && range_operations_ == 0; });
  if (std::find(peers_.begin(), peers_.end(), peer) != peers_.end()) return;
  peers_.reserve(peers_.size() + 1);
  std::vector<Pages> mapped;
  for (const AddressRange* range = ranges_; range != nullptr; range = range->next)
    for (const Segment* segment : range->segments)
      if (segment->first != nullptr) mapped.push_back({segment->address, segment->bytes, range->page_bytes});
  if (paged_ != nullptr) {
    const PageTable& table = paged_->placement.table();
    table.for_each_mapping([&](PageTable::Handle handle, Sectors place) {
      const std::size_t bytes = paged_->bytes_of(table.pages_of(handle));
      mapped.push_back({paged_->address_of(place), bytes, bytes});
    });
  }
  // Nothing is mapped or unmapped meanwhile.
  grants_access_ = true;
  lock.unlock();
  CUresult result = CUDA_SUCCESS;
  try {
    const ContextGuard guard(api_, context_);
    for (std::size_t i = 0; i < mapped.size() && result == CUDA_SUCCESS; ++i) result = pages_->allow(mapped[i], peer);
    if (result == CUDA_SUCCESS && stream_ordered_ != nullptr) result = stream_ordered_->allow(peer);
  } catch (...) {
    result = CUDA_ERROR_INVALID_CONTEXT;
  }
  lock.lock();
  grants_access_ = false;
  reclaimed_.notify_all();
  check_driver(api_, result, DriverEntryId::mem_set_access,
               [&] { return fmt::format("memory of device {} for driver device {}", device_, peer); });
  peers_.push_back(peer);
}

void DeviceAllocator::wait_for_grants(Lock& lock) {
  reclaimed_.wait(lock, [this] { return !grants_access_; });
}

// Only while there is nothing of an address range is the best fit always the answer.
void DeviceAllocator::choose_search() noexcept {
  plain_search_ = options_.policy == Policy::classic && ranges_ == nullptr;
  serves_paged_ = options_.policy == Policy::paged && paged_ != nullptr;
  decays_ = serves_paged_ && options_.decay_ms != 0;
  claims_ = options_.stream_hand_over == StreamHandOver::fair || options_.stream_hand_over == StreamHandOver::wait;
  if (paged_ != nullptr) paged_->placement.keep_ages(decays_);
}

}  // namespace cistern
