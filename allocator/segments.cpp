// Segments from the driver and back to it, with the lock given up around each call.

#include "allocator/device_allocator.h"
#include "runtime/driver_error.h"

#include <fmt/format.h>

#include <utility>

namespace cistern {

// What the driver refuses here stays with the driver: a heap that ends has nobody to tell. Work on
// live blocks of expandable segments is waited for first, for an unmap may not wait.
DeviceAllocator::~DeviceAllocator() {
  try {
    Section section(*this);
    wait_for_pending(section.lock);
  } catch (...) {  // the releases below wait for the device anyway
  }
  try {
    const ContextGuard guard(api_, context_);
    if (ranges_ != nullptr || paged_ != nullptr) static_cast<void>(api_.ctx_synchronize());
    abandon_ranges();
    if (paged_ != nullptr) paged_->abandon();
    for (Segment* segment = segments_; segment != nullptr; segment = segment->next)
      if (segment->range == nullptr && !segment->is_paged())
        static_cast<void>(
            source_of(*segment->owner, is_stream_ordered()).release(segment->address, segment->stream, true));
  } catch (...) {  // no context: the driver is gone, and the memory with it
  }
}

// One attempt. nullptr: the limit forbids it or the driver has no memory; any other
// failure of the driver is thrown.
Block* DeviceAllocator::allocate_segment(const Request& request, Climb& climb, Lock& lock) {
  if (limit_bytes_ != kUnlimited && held_bytes_ + arriving_bytes_ + request.segment_bytes > limit_bytes_)
    return nullptr;
  if (expands(request)) return grow(request, climb, lock);
  const Climb::Metadata metadata = climb.take_metadata();
  arriving_bytes_ += request.segment_bytes;
  const bool during_capture = !routing_.empty();
  SegmentSource& source = source_of(*request.pools, is_stream_ordered());
  const StreamIdentity stream = request.pools->stream;
  const std::size_t limit = is_stream_ordered() && !climb.has_flushed ? limit_bytes_ : kUnlimited;
  lock.unlock();
  std::uint64_t address = 0;
  CUresult result = CUDA_ERROR_INVALID_CONTEXT;
  DriverEntryId failed_call = DriverEntryId::ctx_set_current;
  try {
    const DriverScope scope(api_, context_, during_capture);
    result = source.allocate(request.segment_bytes, stream, &address);
    failed_call = source.allocate_entry();
    // What the driver's pool keeps counts, too: it goes back with the flush, and is then as small as the driver has it.
    // What the driver does not take back is handed out: without what the pool keeps it is within the limit.
    if (result == CUDA_SUCCESS && limit != kUnlimited && stream_ordered_->holds_more_than(limit) &&
        source.release(address, stream, false) == CUDA_SUCCESS)
      result = CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const DriverError& error) {
    result = static_cast<CUresult>(error.code());
  } catch (...) {  // no host memory for the error's text: as a context that cannot be entered
  }
  lock.lock();
  arriving_bytes_ -= request.segment_bytes;
  if (result == CUDA_SUCCESS) return add_segment(metadata, request, address, lock);
  climb.give_back(metadata);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
  throw_driver_error(api_, result, failed_call, fmt::format("{} bytes on device {}", request.segment_bytes, device_));
}

Block* DeviceAllocator::add_segment(const Climb::Metadata& metadata, const Request& request, std::uint64_t address,
                                    const Lock& lock) {
  const auto [segment, block] = metadata;
  segment->address = address;
  segment->bytes = request.segment_bytes;
  segment->stream = request.pools->stream;
  segment->kind = request.kind;
  segment->oversize = policy_.is_oversize(request.segment_bytes);
  segment->pool = &request.pools->of(request.kind);
  segment->owner = request.pools;
  segment->is_plain = caches_ && request.pools->home == nullptr;
  segment->first = segment->last = block;
  segment->is_found_by_page = segment->is_plain && stream_heaps_.add_pages(*segment);
  if (!segment->is_found_by_page) segment->owner->has_hidden_segments = true;
  link_segment(segment);
  ++request.pools->references;
  block->address = address;
  block->bytes = request.segment_bytes;
  block->segment = segment;
  held_bytes_ += request.segment_bytes;
  const auto bytes = static_cast<std::int64_t>(request.segment_bytes);
  segment->stack = history_.keep(lock.stack);
  recorder_.segment_allocated(request.kind, bytes, segment->oversize, point_of(*segment, lock));
  if (PrivatePool* home = request.pools->home) home->segment_arrived(*segment);
  return block;
}

// Gives back segments that are wholly free. Returns the bytes; if the driver refuses one,
// that one stays cached, the others go, and the refusal is thrown. What cannot go back to the driver's
// pool during a capture stays, too, and nothing is thrown: a later flush finds it.
std::size_t DeviceAllocator::release_segments(SegmentList segments, Lock& lock) {
  if (segments.empty()) return 0;
  for (Segment* segment = segments.first(); segment != nullptr; segment = segment->next_chosen) {
    segment->pool->erase(segment->first);
    segment->releasing = segment->going_back = true;
    if (segment->is_found_by_page) stream_heaps_.remove_pages(*segment);
    recorder_.release_begins(point_of(*segment, lock));
  }
  ++reclaims_in_flight_;
  const bool during_capture = !routing_.empty();
  const bool may_wait = !routing_.capture_under_way(true);
  const bool stream_ordered = is_stream_ordered();
  lock.unlock();
  SegmentList gone;
  SegmentList kept;
  CUresult refusal = CUDA_ERROR_INVALID_CONTEXT;
  std::uint64_t first_refused = 0;
  DriverEntryId failed_call = source_.release_entry();
  try {
    const DriverScope scope(api_, context_, during_capture);
    while (Segment* segment = segments.pop_front()) {
      SegmentSource& source = source_of(*segment->owner, stream_ordered);
      const CUresult result = source.release(segment->address, segment->stream, may_wait);
      const bool is_put_off = &source != &source_ && result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
      if (result != CUDA_SUCCESS && !is_put_off && first_refused == 0) {
        refusal = result;
        failed_call = source.release_entry();
        first_refused = segment->address;
      }
      (result == CUDA_SUCCESS ? gone : kept).push_back(segment);
    }
  } catch (...) {  // no context: none was released
    while (Segment* segment = segments.pop_front()) kept.push_back(segment);
    first_refused = kept.first()->address;
  }
  lock.lock();
  --reclaims_in_flight_;
  std::size_t released = 0;
  while (Segment* segment = gone.pop_front()) {
    PrivatePool* const home = segment->owner->home;
    released += segment->bytes;
    remove_segment(segment);
    // A pool may have waited for its last segment only: looked at behind the last of several in a row.
    const bool is_more = !gone.empty() && gone.first()->owner->home == home;
    if (home != nullptr && !is_more) private_pools_.drop_if_unreferenced(*home, retired_);
  }
  while (Segment* segment = kept.pop_front()) {
    segment->releasing = segment->going_back = false;
    if (segment->is_found_by_page) stream_heaps_.put_pages(*segment);
    recorder_.release_refused(point_of(*segment, lock));
    segment->pool->insert(segment->first);
  }
  reclaimed_.notify_all();
  if (first_refused != 0)
    throw_driver_error(api_, refusal, failed_call,
                       fmt::format("the segment at {:#x} on device {}", first_refused, device_));
  return released;
}

// `direct` and `async`: the block's segment goes straight back. If the driver refuses, it stays cached,
// and the next full flush tries again.
void DeviceAllocator::release_uncached(Block* block, Lock& lock) noexcept {
  const bool others_are_idle = has_idle_;
  complete_free(block, lock);
  has_idle_ = others_are_idle;
  try {
    static_cast<void>(release_segments(SegmentList(block->segment), lock));
  } catch (...) {  // a free never throws; the segment is still accounted for
    if (!lock.owns_lock()) lock.lock();
  }
}

void DeviceAllocator::remove_segment(Segment* segment) {
  const auto bytes = static_cast<std::int64_t>(segment->bytes);
  recorder_.segment_freed(segment->kind, bytes, segment->oversize);
  if (PrivatePool* home = segment->owner->home) home->segment_left(*segment);
  held_bytes_ -= segment->bytes;
  unlink_segment(segment);
  --segment->owner->references;
  history_.let_go(segment->stack);
  arena_.give_back(segment->first);
  arena_.give_back(segment);
}

void DeviceAllocator::link_segment(Segment* segment) noexcept {
  segment->previous = nullptr;
  segment->next = segments_;
  if (segments_ != nullptr) segments_->previous = segment;
  segments_ = segment;
  if (segment->bytes != 0) note_addresses(segment->address, segment->end());
}

void DeviceAllocator::note_addresses(std::uint64_t begin, std::uint64_t end) noexcept {
  const auto order = std::memory_order_relaxed;
  if (begin < lowest_address_.load(order)) lowest_address_.store(begin, order);
  if (end > highest_address_.load(order)) highest_address_.store(end, order);
}

void DeviceAllocator::unlink_segment(Segment* segment) noexcept {
  if (segment->previous != nullptr)
    segment->previous->next = segment->next;
  else
    segments_ = segment->next;
  if (segment->next != nullptr) segment->next->previous = segment->previous;
}

// Until no other thread is in the middle of giving memory back.
void DeviceAllocator::wait_for_reclaims(Lock& lock) {
  reclaimed_.wait(lock, [this] { return reclaims_in_flight_ == 0; });
}

}  // namespace cistern
