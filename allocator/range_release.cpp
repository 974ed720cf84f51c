// Expandable segments shrink: the whole pages of free blocks are unmapped, and ranges that have
// none left are given back.

#include "allocator/address_range.h"
#include "allocator/device_allocator.h"
#include "runtime/driver_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace cistern {

// Gives back the whole pages of free blocks in the ranges that `chosen` names, at most so many bytes
// as it takes to reach `most`, from the highest addresses down. Returns the bytes. If the driver
// refuses, what it refused stays cached, the rest goes, and the refusal is thrown.
std::size_t DeviceAllocator::release_ranges(const RangeFilter& chosen, std::size_t most, Lock& lock) {
  const bool owes_releases = pages_ != nullptr && pages_->owes_releases();
  if (ranges_ == nullptr && !owes_releases) return 0;
  wait_for_grants(lock);
  SegmentList departing = cut_free_pages(chosen, most);
  for (Segment* segment = departing.first(); segment != nullptr; segment = segment->next_chosen)
    ++segment->range->owner->waiters;
  ++reclaims_in_flight_;
  ++range_operations_;
  const bool during_capture = !routing_.empty();
  lock.unlock();
  SegmentList tried;
  PageSource::Outcome refusal;
  if (!departing.empty() || owes_releases) refusal = unmap_all(departing, tried, during_capture);
  lock.lock();
  --range_operations_;
  std::size_t released = 0;
  while (Segment* segment = tried.pop_front()) {
    --segment->range->owner->waiters;
    released += take_out(segment, lock);
  }
  drop_empty_ranges(lock);
  --reclaims_in_flight_;
  reclaimed_.notify_all();
  if (!private_pools_.empty()) private_pools_.drop_unreferenced(retired_);
  if (refusal.result != CUDA_SUCCESS)
    throw_driver_error(api_, refusal.result, refusal.call, fmt::format("free pages on device {}", device_));
  return released;
}

// Cuts the free pages out of their segments. Each piece is a segment of its own from here on, in
// no pool.
SegmentList DeviceAllocator::cut_free_pages(const RangeFilter& chosen, std::size_t most) {
  SegmentList departing;
  std::size_t left = most;
  for (AddressRange* range = ranges_; range != nullptr; range = range->next) {
    if (!chosen(*range)) continue;
    // From the end, so that a block changes its segment once, however many cuts are made before it.
    for (std::size_t i = range->segments.size(); i-- > 0;) cut_segment_pages(range->segments[i], left, departing);
  }
  const auto order = [](const Segment& segment) {
    return release_order(*segment.range->owner, segment.range->kind, segment.cut_from_bytes, segment.address);
  };
  departing.sort([&order](const Segment& a, const Segment& b) { return order(a) < order(b); });
  return departing;
}

void DeviceAllocator::cut_segment_pages(Segment* segment, std::size_t& left, SegmentList& departing) noexcept {
  if (segment->releasing) {
    // Not one's that somebody else unmaps already.
    if (std::exchange(segment->is_stray, false)) departing.push_back(segment);
    return;
  }
  const AddressRange& range = *segment->range;
  for (Block* block = segment->last; block != nullptr && left != 0;) {
    Block* previous = block->previous;
    Pages pages = range.pages_in(*block);
    if (block->state == BlockState::inactive && pages.bytes != 0) {
      // No more than asked for: the highest ones.
      const std::size_t wanted = left < pages.bytes ? whole_pages(left, range.page_bytes) : pages.bytes;
      pages.address += pages.bytes - wanted;
      pages.bytes = wanted;
      if (can_cut_out(*block, pages)) {
        left -= std::min(left, wanted);
        const std::size_t block_bytes = block->bytes;
        Segment* piece = cut_out(block, pages);
        piece->cut_from_bytes = block_bytes;
        departing.push_back(piece);
      }
    }
    block = previous;
  }
}

// Whether there are the blocks and segments that a cut takes. They are kept back for it: only where
// there was no host memory when the pages came, or since, pages may have to stay.
bool DeviceAllocator::can_cut_out(const Block& block, const Pages& pages) noexcept {
  const bool has_head = block.address < pages.address;
  const bool has_tail = pages.address + pages.bytes < block.address + block.bytes;
  const std::size_t blocks = (has_head ? 1 : 0) + (has_tail ? 1 : 0);
  const std::size_t pieces =
      (has_head || block.previous != nullptr ? 1 : 0) + (has_tail || block.next != nullptr ? 1 : 0);
  std::vector<Segment*>& segments = block.segment->range->segments;
  if (!arena_.has(blocks, 0))
    for (StreamHeap* stream : mutex_.streams()) stream->spares.move_to(arena_.spares(), stream->spares.size());
  if (arena_.has(blocks, pieces) && segments.capacity() - segments.size() >= pieces) return true;
  try {
    arena_.reserve(blocks, pieces);
    segments.reserve(segments.size() + pieces);
    return true;
  } catch (...) {
    return false;
  }
}

// Requires: the pages lie in the free block, which is in its pool; two blocks and two segments are
// at hand, and room for them in the range.
Segment* DeviceAllocator::cut_out(Block* block, const Pages& pages) noexcept {
  block->segment->pool->erase(block);
  if (const std::uint64_t end = pages.address + pages.bytes; end < block->address + block->bytes)
    split(block, end - block->address);
  if (block->address < pages.address) {
    split(block, pages.address - block->address);
    Block* middle = block->next;
    middle->segment->pool->erase(middle);
    put_in_pool(block);
    block = middle;
  }
  if (block->next != nullptr) static_cast<void>(part_before(block->next));
  Segment* segment = block->previous != nullptr ? part_before(block) : block->segment;
  segment->releasing = true;
  if (segment->is_found_by_page) stream_heaps_.remove_pages(*segment);
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
  high->is_found_by_page = low->is_found_by_page;
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

// Unmaps what departs, each behind the last work of its range's stream, which an unmap must not
// overtake: unlike a free of the driver's, it promises to wait for nothing. How far each came is noted
// in it. Returns the first refusal, or success. Called without the lock: the streams stay what they are
// while they have waiters.
PageSource::Outcome DeviceAllocator::unmap_all(SegmentList& departing, SegmentList& tried,
                                               bool during_capture) noexcept {
  PageSource::Outcome refusal;
  try {
    const DriverScope scope(api_, context_, during_capture);
    const StreamHeap* owner = nullptr;
    CUresult waited = CUDA_SUCCESS;
    while (Segment* segment = departing.pop_front()) {
      const AddressRange& range = *segment->range;
      if (range.owner != owner) waited = wait_for_owner(*range.owner, during_capture);
      owner = range.owner;
      PageSource::Outcome outcome{waited, DriverEntryId::stream_synchronize, 0};
      if (waited == CUDA_SUCCESS) outcome = pages_->unmap({segment->address, segment->bytes, range.page_bytes});
      segment->unmapped_bytes = outcome.done;
      // A stream that is captured cannot be waited for, and what was its memory waits with it.
      if (outcome.result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && refusal.result == CUDA_SUCCESS) refusal = outcome;
      tried.push_back(segment);
    }
    pages_->release_owed();
  } catch (...) {  // no context: nothing was unmapped
    while (Segment* segment = departing.pop_front()) tried.push_back(segment);
    refusal = {CUDA_ERROR_INVALID_CONTEXT, DriverEntryId::ctx_set_current, 0};
  }
  return refusal;
}

// Waiting for the device would invalidate a capture, of whichever thread: then the pages stay.
CUresult DeviceAllocator::wait_for_owner(const StreamHeap& owner, bool during_capture) const noexcept {
  const auto wait_for_device = [&] {
    return during_capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : api_.ctx_synchronize();
  };
  if (owner.is_ended) {
    if (owner.end == nullptr) return wait_for_device();
    return owner.end->event == nullptr ? CUDA_SUCCESS : api_.event_synchronize(owner.end->event);
  }
  const StreamUse use{owner.stream, device_, nullptr};
  if (!names_its_stream(use)) return wait_for_device();
  // A capture would end by it.
  if (is_captured(use)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return api_.stream_synchronize(owner.stream.handle);
}

// What was unmapped is gone, and what was not is free memory as before. Returns the bytes that went.
std::size_t DeviceAllocator::take_out(Segment* segment, const Lock& lock) noexcept {
  const std::size_t gone = std::exchange(segment->unmapped_bytes, 0);
  const bool is_held = segment->first != nullptr;  // else of a map that failed: never counted
  count_mapped(0, gone / segment->range->page_bytes);
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
  if (!is_held) {
    segment->is_stray = true;
    return 0;
  }
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
    keep_spare(std::unique_ptr<AddressRange>(range));
  }
  choose_search();
}

// One is kept, as new but for what its vector has room for.
void DeviceAllocator::keep_spare(std::unique_ptr<AddressRange> range) noexcept {
  if (spare_range_ != nullptr && spare_range_->segments.capacity() >= range->segments.capacity()) return;
  std::vector<Segment*> room = std::move(range->segments);
  room.clear();
  *range = AddressRange{};
  range->segments = std::move(room);
  spare_range_ = std::move(range);
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
