// Expandable segments grow: pages are mapped where free blocks and unmapped addresses together hold
// a request, at the lowest such place of the stream's address ranges.
//
// The lock is given up around the driver's calls. Pages that are on their way are marked in their
// range, so that nobody else counts on them; blocks beside them stay everybody's.

#include "allocator/address_range.h"
#include "allocator/device_allocator.h"
#include "runtime/driver_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace cistern {
namespace {

// Free blocks that PyTorch's reservation also leaves room to move: an eighth more than the device has.
std::size_t range_bytes(std::size_t device_bytes, std::size_t page_bytes) {
  return whole_pages(device_bytes + device_bytes / 8, page_bytes);
}

}  // namespace

// One attempt, as allocate_segment. A request may take several maps, with free blocks between
// them; those that were made before one that fails stay, as free memory.
Block* DeviceAllocator::grow(const Request& request, Climb& climb, Lock& lock) {
  for (;;) {
    wait_for_grants(lock);
    const auto room = find_room(request);
    if (!room) {
      if (!add_range(request, lock)) return nullptr;
      continue;
    }
    if (room->head != nullptr && room->head->bytes >= request.rounded) {
      room->head->segment->pool->erase(room->head);
      return room->head;
    }
    Block* block = map_pages(*room->range, room->gap, climb, lock);
    if (block == nullptr) return nullptr;
    if (block->bytes >= request.rounded) return block;
    put_in_pool(block);
  }
}

// All host memory that `grow` needs, while there is some. Throws std::bad_alloc, unchanged.
void DeviceAllocator::provide_for_growth(const Request& request, Climb& climb) {
  const std::size_t page_bytes = page_bytes_of(request.kind);
  if (request.rounded > range_bytes(device_total_bytes_, page_bytes)) return;
  const std::size_t most = whole_pages(request.rounded, page_bytes) / page_bytes;
  PageSource::make_room(climb.handles, most);
  if (spare_range_ == nullptr) spare_range_ = std::make_unique<AddressRange>();
  spare_range_->segments.reserve(most);
  for (AddressRange* range = ranges_; range != nullptr; range = range->next) {
    if (range->owner != request.pools || range->kind != request.kind) continue;
    range->reserve_pieces(most);
    const std::uint64_t end = range->segments.empty() ? range->address : range->segments.back()->end();
    if (range->is_found_by_page) make_pages_known(*range, end + most * page_bytes);
  }
}

// Blocks in pages up to `end` can be found. Throws std::bad_alloc, unchanged.
void DeviceAllocator::make_pages_known(AddressRange& range, std::uint64_t end) {
  const std::uint64_t wanted = std::min(end, range.end());
  if (wanted <= range.known_end) return;
  stream_heaps_.reserve_pages(range.known_end, wanted - range.known_end);
  range.known_end = wanted;
}

std::optional<AddressRange::Room> DeviceAllocator::find_room(const Request& request) const {
  for (AddressRange* range = ranges_; range != nullptr; range = range->next) {
    if (range->owner != request.pools || range->kind != request.kind) continue;
    if (auto room = range->room_for(request.rounded)) return room;
  }
  return std::nullopt;
}

// A new address range for the request's pool. False: there are no addresses left, or it could not
// hold the request at all.
bool DeviceAllocator::add_range(const Request& request, Lock& lock) {
  const std::size_t page_bytes = page_bytes_of(request.kind);
  const std::size_t bytes = range_bytes(device_total_bytes_, page_bytes);
  if (request.rounded > bytes) return false;
  auto range = spare_range_ != nullptr ? std::move(spare_range_) : std::make_unique<AddressRange>();
  range->page_bytes = page_bytes;
  range->bytes = bytes;
  range->kind = request.kind;
  range->owner = request.pools;
  const bool during_capture = !routing_.empty();
  lock.unlock();
  CUresult result = CUDA_ERROR_INVALID_CONTEXT;
  try {
    const DriverScope scope(api_, context_, during_capture);
    result = pages_->reserve(range->bytes, &range->address);
  } catch (...) {  // no context
  }
  lock.lock();
  out_of_addresses_ = result == CUDA_ERROR_OUT_OF_MEMORY;
  if (out_of_addresses_) {
    keep_spare(std::move(range));
    return false;
  }
  check_driver(api_, result, DriverEntryId::mem_address_reserve,
               [&] { return fmt::format("{} bytes of addresses for device {}", range->bytes, device_); });
  ++request.pools->references;
  range->known_end = range->address;
  range->is_found_by_page = request.pools->home == nullptr && StreamHeapArena::fills_pages(range->address, page_bytes);
  link_range(range.release());
  return true;
}

void DeviceAllocator::link_range(AddressRange* range) noexcept {
  AddressRange** place = &ranges_;
  while (*place != nullptr && (*place)->address < range->address) place = &(*place)->next;
  range->next = *place;
  *place = range;
  plain_search_ = false;
}

// Maps a gap's pages. The free block that they are in then, merged with its neighbours, and in no
// pool; null if the device has no memory. Any other refusal is thrown.
Block* DeviceAllocator::map_pages(AddressRange& range, const Pages& gap, Climb& climb, Lock& lock) {
  const std::size_t pages = gap.bytes / gap.page_bytes;
  range.reserve_pieces(pages);
  // Provided for before, unless the range is new, or others of the stream made it longer meanwhile.
  if (range.is_found_by_page) make_pages_known(range, gap.address + gap.bytes);
  const Climb::Metadata metadata = climb.take_metadata();
  const auto [segment, block] = metadata;
  count_mapped(pages, 0);
  segment->address = gap.address;
  segment->bytes = gap.bytes;
  segment->range = &range;
  segment->releasing = true;
  range.insert(segment);
  arriving_bytes_ += gap.bytes;
  ++range_operations_;
  const bool shareable = !follows_2_4();
  const bool during_capture = !routing_.empty();
  lock.unlock();
  PageSource::Outcome outcome{CUDA_ERROR_INVALID_CONTEXT, DriverEntryId::ctx_set_current, 0};
  try {
    const DriverScope scope(api_, context_, during_capture);
    outcome = pages_->map(gap, peers_, shareable, climb.handles);
  } catch (...) {  // no context: nothing was mapped
  }
  lock.lock();
  --range_operations_;
  arriving_bytes_ -= gap.bytes;
  reclaimed_.notify_all();
  if (outcome.result == CUDA_SUCCESS) return take_in(segment, block, lock);
  count_mapped(0, (gap.bytes - outcome.done) / gap.page_bytes);
  // What could not be rolled back keeps its place, so that nobody maps there: the next release tries again.
  if (outcome.done != 0) {
    segment->bytes = outcome.done;
    segment->is_stray = true;
    climb.give_back({nullptr, block});
  } else {
    range.erase(segment);
    climb.give_back(metadata);
    if (range.segments.empty()) drop_empty_ranges(lock);
  }
  if (outcome.result == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
  throw_driver_error(api_, outcome.result, outcome.call,
                     fmt::format("{} bytes at {:#x} on device {}", gap.bytes, gap.address, device_));
}

// What may have to be cut in pieces once, a page each at the worst, has the blocks and segments for it
// kept back: a flush must not need host memory.
void DeviceAllocator::count_mapped(std::size_t came, std::size_t went) noexcept {
  mapped_pages_ += came;
  mapped_pages_ -= went;
  arena_.keep_back(2 * mapped_pages_, mapped_pages_);
}

// Pages that were mapped become one free block.
Block* DeviceAllocator::take_in(Segment* segment, Block* block, const Lock& lock) noexcept {
  const AddressRange& range = *segment->range;
  segment->stream = range.owner->stream;
  segment->kind = range.kind;
  segment->owner = range.owner;
  segment->pool = &range.owner->of(range.kind);
  segment->is_found_by_page = range.is_found_by_page;
  if (!segment->is_found_by_page) range.owner->has_hidden_segments = true;
  segment->first = segment->last = block;
  block->address = segment->address;
  block->bytes = segment->bytes;
  block->segment = segment;
  link_segment(segment);
  held_bytes_ += segment->bytes;
  const auto bytes = static_cast<std::int64_t>(segment->bytes);
  segment->stack = history_.keep(lock.stack);
  recorder_.range_mapped(range.kind, bytes, point_of(*segment, lock));
  if (PrivatePool* home = range.owner->home) home->pages_arrived(range.kind, bytes);
  return land(segment);
}

// The segment's one block is free and in no pool: joins both with what touches them, and returns
// the block, which is still in no pool.
Block* DeviceAllocator::land(Segment* segment) noexcept {
  Block* block = segment->first;
  segment->releasing = false;
  if (segment->is_found_by_page) stream_heaps_.put_pages(*segment);
  if (Segment* before = segment->range->touching_before(*segment)) segment = join(before, segment);
  if (Segment* after = segment->range->touching_after(*segment)) join(segment, after);
  merge(block, block->previous, arena_.spares());
  merge(block, block->next, arena_.spares());
  return block;
}

// Makes one segment of two that touch; `low` is the one before. The one with fewer blocks goes, the
// stack of the lower pages stays, as in PyTorch.
Segment* DeviceAllocator::join(Segment* low, Segment* high) noexcept {
  const Block* of_low = low->first;
  const Block* of_high = high->first;
  while (of_low != nullptr && of_high != nullptr) {
    of_low = of_low->next;
    of_high = of_high->next;
  }
  Segment* kept = of_high == nullptr ? low : high;
  Segment* gone = kept == low ? high : low;
  for (Block* block = gone->first; block != nullptr; block = block->next) block->segment = kept;
  low->last->next = high->first;
  high->first->previous = low->last;
  kept->range->erase(gone);
  const std::uint64_t address = low->address;
  const std::size_t bytes = low->bytes + high->bytes;
  Block* const first = low->first;
  Block* const last = high->last;
  kept->address = address;
  kept->bytes = bytes;
  kept->first = first;
  kept->last = last;
  std::swap(kept->stack, low->stack);
  history_.let_go(gone->stack);
  unlink_segment(gone);
  arena_.give_back(gone);
  return kept;
}

}  // namespace cistern
