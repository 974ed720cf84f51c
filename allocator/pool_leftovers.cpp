// What is left of a private pool: the search of others' pools before a request fails, and the
// way of a MemPool's memory when its last use is gone.

#include "allocator/device_allocator.h"

#include <utility>

namespace cistern {
namespace {

bool is_wholly_free(const Segment& segment) {
  return segment.range == nullptr && !segment.releasing && segment.first->state == BlockState::inactive &&
         !segment.first->is_split();
}

// The nearest pool above that is still used: it inherits.
PrivatePool* heir_of(const PrivatePool& pool) {
  PrivatePool* heir = pool.parent;
  while (heir != nullptr && heir->is_freeable()) heir = heir->parent;
  return heir;
}

}  // namespace

// Search only: a pool that was opted in as overflow keeps its block, which goes back to it.
Block* DeviceAllocator::take_from_overflow(const Request& request) {
  if (request.pools->home != nullptr) return nullptr;
  Block* found = nullptr;
  private_pools_.for_each([&](PrivatePool& pool) {
    if (found != nullptr || !pool.settings.use_on_oom || !pool.streams.knows(request.pools->stream.id)) return;
    Request asked = request;
    asked.pools = &pool.streams.of(request.pools->stream);
    found = take_free_block(asked);
  });
  return found;
}

// Gives the free segments of MemPools that have no use left to their heirs, or back. Not while a
// capture is under way, when a later call does it. What the driver refuses stays cached, and
// goes with the next full flush.
void DeviceAllocator::release_leftovers(Lock& lock) noexcept {
  leftovers_ = capture_under_way();
  if (!leftovers_)
    release_leftovers_of(lock, [this](auto&& visit) {
      private_pools_.for_each([&](PrivatePool& pool) {
        if (pool.is_freeable() && pool.settings.ends_by_itself) visit(pool);
      });
    });
  private_pools_.drop_unreferenced(retired_);
}

// The same of one that has just lost its last use; of the others' too, if some wait. Without those, and without
// expandable segments, no other pool is looked at.
void DeviceAllocator::release_leftovers_of(PoolId id, Lock& lock) noexcept {
  if (leftovers_ || capture_under_way()) return release_leftovers(lock);
  release_leftovers_of(lock, [&](auto&& visit) {
    if (PrivatePool* pool = private_pools_.find(id)) visit(*pool);
  });
  // The lock was given up, and the pool may have ended.
  if (PrivatePool* pool = private_pools_.find(id)) private_pools_.drop_if_unreferenced(*pool, retired_);
}

template <class Pools>
void DeviceAllocator::release_leftovers_of(Lock& lock, Pools&& pools) noexcept {
  try {
    SegmentList chosen;
    pools([&](PrivatePool& pool) { move_leftovers(pool, chosen); });
    release_segments_and_ranges(std::move(chosen), lock);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
  }
}

// To its heir; without one they are chosen.
void DeviceAllocator::move_leftovers(PrivatePool& pool, SegmentList& chosen) {
  SegmentList leftovers;
  pool.streams.for_each([&](StreamHeap& heap) {
    for (const BlockPool& half : heap.pools)
      half.for_each([&](const Block* block) {
        if (is_wholly_free(*block->segment)) leftovers.push_back(block->segment);
      });
  });
  PrivatePool* const heir = heir_of(pool);
  while (Segment* segment = leftovers.pop_front()) {
    if (heir == nullptr) {
      chosen.push_back(segment);
      continue;
    }
    segment->pool->erase(segment->first);
    try {
      move_segment(segment, heir->streams.of(segment->stream));
    } catch (...) {
      segment->pool->insert(segment->first);
      throw;
    }
    segment->pool->insert(segment->first);
  }
  if (heir != nullptr)
    move_leftover_ranges([&](const AddressRange& range) { return range.owner->home == &pool; }, *heir);
}

void DeviceAllocator::release_segments_and_ranges(SegmentList chosen, Lock& lock) {
  static_cast<void>(release_segments(std::move(chosen), lock));
  static_cast<void>(release_ranges(
      [](const AddressRange& range) {
        const PrivatePool* home = range.owner->home;
        return home != nullptr && home->is_freeable() && home->settings.ends_by_itself && heir_of(*home) == nullptr;
      },
      kUnlimited, lock));
}

// Requires: the segment is one free block, which is in no pool.
void DeviceAllocator::move_segment(Segment* segment, StreamHeap& to) noexcept {
  if (PrivatePool* from = segment->owner->home; from != to.home) {
    if (from != nullptr) from->segment_left(*segment);
    if (to.home != nullptr) to.home->segment_arrived(*segment);
  }
  --segment->owner->references;
  ++to.references;
  segment->owner = &to;
  segment->pool = &to.of(segment->kind);
  segment->stream = to.stream;
  segment->is_plain = caches_ && to.home == nullptr;
  if (segment->is_found_by_page) stream_heaps_.put_pages(*segment);
  if (!segment->is_found_by_page) to.has_hidden_segments = true;
}

std::size_t DeviceAllocator::trim_pool(PoolId id) {
  Section section(*this);
  PrivatePool& pool = used_pool(id);
  SegmentList chosen;
  for (Segment* segment = segments_; segment != nullptr; segment = segment->next)
    if (segment->owner->home == &pool && is_wholly_free(*segment)) chosen.push_back(segment);
  const std::size_t released = release_segments(std::move(chosen), section.lock);
  // The lock was given up, and the pool may have ended.
  return released +
         release_ranges(
             [&](const AddressRange& range) { return range.owner->home != nullptr && range.owner->home->id == id; },
             kUnlimited, section.lock);
}

}  // namespace cistern
