// The full flush: waits for every pending free, then gives all wholly free segments back.
// Also empty_cache and trim, which are parts of it.

#include "allocator/device_allocator.h"
#include "runtime/driver_error.h"

#include <fmt/format.h>

#include <utility>

namespace cistern {

// The default pool's large half, its small one, then the private pools'; in each by stream, size
// and address.
DeviceAllocator::ReleaseOrder DeviceAllocator::release_order(const StreamHeap& owner, PoolKind kind, std::size_t bytes,
                                                             std::uint64_t address) {
  const bool is_private = owner.home != nullptr;
  const bool large_first = !is_private;
  return {is_private,
          is_private ? owner.home->id : PoolId{},
          (kind == PoolKind::large) != large_first,
          stream_number(owner.stream),
          bytes,
          address};
}

// During a capture of this thread nothing is waited for, and only what pools without a use have
// free goes back.
void DeviceAllocator::full_flush(Lock& lock) {
  const bool capturing = capture_under_way();
  if (!capturing) wait_for_pending(lock);
  if (leftovers_) release_leftovers(lock);
  static_cast<void>(release_segments(wholly_free_segments(!capturing), lock));
  static_cast<void>(release_ranges(
      [capturing](const AddressRange& range) {
        const PrivatePool* home = range.owner->home;
        return home == nullptr ? !capturing : home->is_freeable();
      },
      kUnlimited, lock));
  if (!capturing) static_cast<void>(release_paged(kUnlimited, lock));
  if (!capturing) static_cast<void>(trim_driver_pool(0, lock));
  if (!capturing) wait_for_reclaims(lock);
  pools_.drop_unreferenced();
  private_pools_.drop_unreferenced(retired_);
}

// Waits on the host, with the lock given up, for every event that is queued now. If the
// driver fails, the frees whose events are done are completed and the rest stay pending.
void DeviceAllocator::wait_for_pending(Lock& lock) {
  recorder_.all_streams_synchronized();
  if (unrecorded_frees_ != nullptr) retry_unrecorded_frees(lock);
  if (pending_.empty()) return;
  const DriverScope scope(api_, context_, !routing_.empty());
  PendingFrees::Batch batch;
  pending_.take_all(batch);
  failed_query_ = CUDA_SUCCESS;  // now they are waited for
  ++reclaims_in_flight_;
  lock.unlock();
  CUresult result = CUDA_SUCCESS;
  const PendingFrees::Node* not_done = batch.first;
  while (not_done != nullptr && (result = api_.event_synchronize(not_done->event)) == CUDA_SUCCESS)
    not_done = not_done->next;
  lock.lock();
  --reclaims_in_flight_;
  while (batch.first != not_done)
    if (Block* block = pending_.finish_first(batch)) complete_free(block, lock);
  reclaimed_.notify_all();
  pending_.put_back(batch);
  check_driver(api_, result, DriverEntryId::event_synchronize,
               [&] { return fmt::format("an event that guards a free on device {}", device_); });
}

// Of the default pool, if asked for, and of the private pools that have no use left, in the order
// in which PyTorch gives them back. Expandable segments go by the page: release_ranges.
SegmentList DeviceAllocator::wholly_free_segments(bool of_default_pool) const {
  SegmentList segments;
  for (Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    const Block* block = segment->first;
    const PrivatePool* home = segment->owner->home;
    if (home == nullptr ? !of_default_pool : !home->is_freeable()) continue;
    if (segment->range != nullptr || segment->is_paged()) continue;
    if (!segment->releasing && block->state == BlockState::inactive && !block->is_split()) segments.push_back(segment);
  }
  segments.sort([](const Segment& a, const Segment& b) {
    return release_order(*a.owner, a.kind, a.bytes, a.address) < release_order(*b.owner, b.kind, b.bytes, b.address);
  });
  return segments;
}

void DeviceAllocator::empty_cache() {
  const Gathering gathers = gathering();
  const GatheredStack stack(gathers.includes(HistoryContext::all), gathers.most_frames());
  Section section(*this, stack);
  full_flush(section.lock);
}

std::size_t DeviceAllocator::trim(std::size_t target_bytes) {
  const Gathering gathers = gathering();
  const GatheredStack stack(gathers.includes(HistoryContext::all), gathers.most_frames());
  Section section(*this, stack);
  Lock& lock = section.lock;
  poll_pending(lock);
  SegmentList segments = wholly_free_segments();
  segments.sort([](const Segment& a, const Segment& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.address < b.address;
  });
  std::size_t held = held_bytes_;
  SegmentList chosen;
  while (held > target_bytes && !segments.empty()) {
    Segment* segment = segments.pop_front();
    held -= segment->bytes;
    chosen.push_back(segment);
  }
  std::size_t released = release_segments(std::move(chosen), lock);
  if (held_bytes_ > target_bytes)
    released += release_ranges(
        [](const AddressRange& range) {
          const PrivatePool* home = range.owner->home;
          return home == nullptr || home->is_freeable();
        },
        held_bytes_ - target_bytes, lock);
  if (held_bytes_ > target_bytes) released += release_paged(held_bytes_ - target_bytes, lock);
  released += trim_driver_pool(target_bytes, lock);
  return released;
}

}  // namespace cistern
