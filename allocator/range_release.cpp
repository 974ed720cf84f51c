// Expandable segments shrink: the whole pages of free blocks are unmapped, and ranges that have
// none left are given back.

#include "allocator/address_range.h"
#include "allocator/device_allocator.h"
#include "runtime/driver_error.h"

#include <fmt/format.h>

#include <algorithm>

namespace cistern {

// The last work of a range's stream, which an unmap must not overtake: unlike a free of the
// driver's, it promises to wait for nothing.
struct DeviceAllocator::OwnerWait {
  PoolPair* owner = nullptr;
  StreamIdentity stream;
  bool is_ended = false;
  std::shared_ptr<StreamEnd> end;
  CUresult result = CUDA_SUCCESS;
};

// Pages on their way to the driver, and what became of them.
struct DeviceAllocator::Departure {
  Segment* segment = nullptr;
  std::size_t wait = 0;  // index of its owner's
  // Of the block that the pages were cut from.
  std::size_t block_bytes = 0;
  std::uint64_t block_address = 0;
  PageSource::Outcome outcome{CUDA_ERROR_INVALID_CONTEXT, DriverEntryId::ctx_set_current, 0};
};

// Gives back the whole pages of free blocks in the ranges that `chosen` names, at most so many bytes
// as it takes to reach `most`, from the highest addresses down. Returns the bytes. If the driver
// refuses, what it refused stays cached, the rest goes, and the refusal is thrown.
std::size_t DeviceAllocator::release_ranges(const RangeFilter& chosen, std::size_t most, Lock& lock) {
  const bool owes_releases = pages_ != nullptr && pages_->owes_releases();
  if (ranges_ == nullptr && !owes_releases) return 0;
  wait_for_grants(lock);
  std::vector<OwnerWait> waits;
  std::vector<Departure> departures = cut_free_pages(chosen, most, waits);
  for (const OwnerWait& wait : waits) ++wait.owner->waiters;
  ++reclaims_in_flight_;
  ++range_operations_;
  const bool during_capture = !routing_.empty();
  lock.unlock();
  if (!departures.empty() || owes_releases) {
    try {
      const DriverScope scope(api_, context_, during_capture);
      for (OwnerWait& wait : waits) wait.result = wait_for_owner(wait, during_capture);
      for (Departure& departure : departures) depart(departure, waits[departure.wait]);
      if (owes_releases) pages_->release_owed();
    } catch (...) {  // no context: nothing was unmapped, as the outcomes say
    }
  }
  lock.lock();
  for (const OwnerWait& wait : waits) --wait.owner->waiters;
  --range_operations_;
  const Departure* refused = nullptr;
  std::size_t released = 0;
  for (Departure& departure : departures) {
    released += take_out(departure, lock);
    // A stream that is captured cannot be waited for, and what was its memory waits with it.
    const CUresult result = departure.outcome.result;
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && refused == nullptr)
      refused = &departure;
  }
  drop_empty_ranges(lock);
  --reclaims_in_flight_;
  reclaimed_.notify_all();
  if (!private_pools_.empty()) private_pools_.drop_unreferenced(retired_owners_);
  if (refused != nullptr)
    throw_driver_error(api_, refused->outcome.result, refused->outcome.call,
                       fmt::format("free pages on device {}", device_));
  return released;
}

// Cuts the free pages out of their segments. Each piece is a segment of its own from here on, in
// no pool. All host memory is taken before anything is changed: throws std::bad_alloc, unchanged.
std::vector<DeviceAllocator::Departure> DeviceAllocator::cut_free_pages(const RangeFilter& chosen, std::size_t most,
                                                                        std::vector<OwnerWait>& waits) {
  std::vector<Departure> departures;
  std::size_t cuts = 0;
  for (AddressRange* range = ranges_; range != nullptr; range = range->next) {
    if (!chosen(*range)) continue;
    std::size_t in_range = 0;
    for (const Segment* segment : range->segments) in_range += count_departures(*segment);
    if (in_range == 0) continue;
    range->segments.reserve(range->segments.size() + 2 * in_range);
    cuts += in_range;
    if (index_of(waits, range->owner) == waits.size())
      waits.push_back({range->owner, range->owner->stream, range->owner->is_ended, range->owner->end, CUDA_SUCCESS});
  }
  departures.reserve(cuts);
  arena_.reserve(2 * cuts, 2 * cuts);
  std::size_t left = most;
  for (AddressRange* range = ranges_; range != nullptr; range = range->next) {
    if (!chosen(*range)) continue;
    const std::size_t wait = index_of(waits, range->owner);
    // From the end, so that a block changes its segment once, however many cuts are made before it.
    for (std::size_t i = range->segments.size(); i-- > 0;)
      cut_segment_pages(range->segments[i], wait, left, departures);
  }
  const auto order = [](const Departure& departure) {
    const AddressRange& range = *departure.segment->range;
    return release_order(*range.owner, range.kind, departure.block_bytes, departure.block_address);
  };
  std::sort(departures.begin(), departures.end(),
            [&order](const Departure& a, const Departure& b) { return order(a) < order(b); });
  return departures;
}

std::size_t DeviceAllocator::index_of(const std::vector<OwnerWait>& waits, const PoolPair* owner) noexcept {
  std::size_t index = 0;
  while (index < waits.size() && waits[index].owner != owner) ++index;
  return index;
}

// How many pieces of a segment may depart.
std::size_t DeviceAllocator::count_departures(const Segment& segment) {
  if (segment.releasing) return segment.is_stray ? 1 : 0;
  std::size_t count = 0;
  for (const Block* block = segment.first; block != nullptr; block = block->next)
    if (block->state == BlockState::inactive && segment.range->pages_in(*block).bytes != 0) ++count;
  return count;
}

void DeviceAllocator::cut_segment_pages(Segment* segment, std::size_t wait, std::size_t& left,
                                        std::vector<Departure>& departures) noexcept {
  if (segment->releasing) {
    if (segment->is_stray) departures.push_back({segment, wait});
    return;
  }
  const AddressRange& range = *segment->range;
  for (Block* block = segment->last; block != nullptr && left != 0;) {
    Block* previous = block->previous;
    Pages pages = range.pages_in(*block);
    if (block->state == BlockState::inactive && pages.bytes != 0) {
      // No more than asked for: the highest ones.
      const std::size_t wanted =
          left < pages.bytes ? (left + range.page_bytes - 1) / range.page_bytes * range.page_bytes : pages.bytes;
      pages.address += pages.bytes - wanted;
      pages.bytes = wanted;
      left -= std::min(left, wanted);
      const std::size_t block_bytes = block->bytes;
      const std::uint64_t block_address = block->address;
      departures.push_back({cut_out(block, pages), wait, block_bytes, block_address});
    }
    block = previous;
  }
}

// Requires: the pages lie in the free block, which is in its pool; two blocks and two segments are
// at hand, and room for them in the range.
Segment* DeviceAllocator::cut_out(Block* block, const Pages& pages) noexcept {
  block->segment->pool->erase(block);
  if (const std::uint64_t end = pages.address + pages.bytes; end < block->address + block->bytes)
    static_cast<void>(split(block, end - block->address));
  if (block->address < pages.address) {
    static_cast<void>(split(block, pages.address - block->address));
    Block* middle = block->next;
    middle->segment->pool->erase(middle);
    put_in_pool(block);
    block = middle;
  }
  if (block->next != nullptr) static_cast<void>(part_before(block->next));
  Segment* segment = block->previous != nullptr ? part_before(block) : block->segment;
  segment->releasing = true;
  return segment;
}

// Makes two segments of one: that which begins with `block`, which it returns, and what is before.
Segment* DeviceAllocator::part_before(Block* block) noexcept {
  Segment* low = block->segment;
  Segment* high = arena_.take_segment();
  high->address = block->address;
  high->bytes = low->end() - block->address;
  high->stream = low->stream;
  high->kind = low->kind;
  high->pool = low->pool;
  high->owner = low->owner;
  high->range = low->range;
  high->stack = history_.keep(low->stack);
  high->first = block;
  high->last = low->last;
  low->bytes -= high->bytes;
  low->last = block->previous;
  low->last->next = nullptr;
  block->previous = nullptr;
  for (Block* moved = block; moved != nullptr; moved = moved->next) moved->segment = high;
  link_segment(high);
  high->range->insert(high);
  return high;
}

// Waiting for the device would invalidate a capture, of whichever thread: then the pages stay.
CUresult DeviceAllocator::wait_for_owner(const OwnerWait& wait, bool during_capture) const noexcept {
  const auto wait_for_device = [&] {
    return during_capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : api_.ctx_synchronize();
  };
  if (wait.is_ended) {
    if (wait.end == nullptr) return wait_for_device();
    return wait.end->event == nullptr ? CUDA_SUCCESS : api_.event_synchronize(wait.end->event);
  }
  const StreamUse owner{wait.stream, device_, nullptr};
  if (!names_its_stream(owner)) return wait_for_device();
  // A capture would end by it.
  if (is_captured(owner)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return api_.stream_synchronize(wait.stream.handle);
}

void DeviceAllocator::depart(Departure& departure, const OwnerWait& wait) noexcept {
  if (wait.result != CUDA_SUCCESS) {
    departure.outcome = {wait.result, DriverEntryId::stream_synchronize, 0};
    return;
  }
  const Segment& segment = *departure.segment;
  departure.outcome = pages_->unmap({segment.address, segment.bytes, segment.range->page_bytes});
}

// What was unmapped is gone, and what was not is free memory as before. Returns the bytes that went.
std::size_t DeviceAllocator::take_out(const Departure& departure, const Lock& lock) noexcept {
  Segment* segment = departure.segment;
  const std::size_t gone = departure.outcome.done;
  const bool is_held = segment->first != nullptr;  // else of a map that failed: never counted
  if (gone != 0 && is_held) {
    const auto bytes = static_cast<std::int64_t>(gone);
    TracePoint at = point_of(*segment, lock);
    at.size = bytes;
    recorder_.range_unmapped(segment->kind, bytes, at);
    if (PrivatePool* home = segment->owner->home) home->pages_left(segment->kind, bytes);
    held_bytes_ -= gone;
  }
  if (gone == segment->bytes) {
    segment->range->erase(segment);
    if (is_held) {
      history_.let_go(segment->stack);
      unlink_segment(segment);
      arena_.give_back(segment->first);
    }
    arena_.give_back(segment);
    return is_held ? gone : 0;
  }
  segment->address += gone;
  segment->bytes -= gone;
  if (!is_held) return 0;
  segment->first->address = segment->address;
  segment->first->bytes = segment->bytes;
  put_in_pool(land(segment));
  return gone;
}

// Addresses without memory go back; a range that the driver refuses to take stays.
void DeviceAllocator::drop_empty_ranges(Lock& lock) noexcept {
  AddressRange* empty = nullptr;
  for (AddressRange** place = &ranges_; *place != nullptr;) {
    AddressRange* range = *place;
    if (!range->segments.empty()) {
      place = &range->next;
      continue;
    }
    *place = range->next;
    range->next = empty;
    empty = range;
  }
  if (empty == nullptr) return;
  const bool during_capture = !routing_.empty();
  lock.unlock();
  AddressRange* refused = nullptr;
  while (empty != nullptr) {
    AddressRange* range = empty;
    empty = range->next;
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    try {
      const DriverScope scope(api_, context_, during_capture);
      result = pages_->free(range->address, range->bytes);
    } catch (...) {  // no context: it stays reserved
    }
    if (result == CUDA_SUCCESS) range->bytes = 0;
    range->next = refused;
    refused = range;
  }
  lock.lock();
  while (refused != nullptr) {
    AddressRange* range = refused;
    refused = range->next;
    if (range->bytes != 0) {
      link_range(range);
      continue;
    }
    --range->owner->references;
    delete range;
  }
  choose_search();
}

// For a heap that ends: everything goes, blocks in use included. The device's work is over.
void DeviceAllocator::abandon_ranges() noexcept {
  while (ranges_ != nullptr) {
    AddressRange* range = ranges_;
    ranges_ = range->next;
    for (const Segment* segment : range->segments)
      static_cast<void>(pages_->unmap({segment->address, segment->bytes, range->page_bytes}));
    static_cast<void>(pages_->free(range->address, range->bytes));
    delete range;
  }
}

}  // namespace cistern
