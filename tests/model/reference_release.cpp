// What the executable specification gives back to the device.

#include "reference_allocator.h"
#include "tests/model/number.h"

#include <algorithm>
#include <iterator>

namespace cistern::model {

void ReferenceAllocator::flush() {
  const bool waits = !capturing();
  if (waits) {
    ++stats_.num_sync_all_streams;
    record_put_off_frees();
    for (const auto& [stream, events] : pending_)
      for (const PendingEvent& event : events) done_[stream] = std::max(done_[stream], event.position);
    query_events();
    if (leftovers_) release_leftovers();
  }
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto next = std::next(segment);
    if (!segment->is_split() && segment->blocks[0].free() && gives_back(segment->pool) && (waits || segment->pool != 0))
      release(segment);
    segment = next;
  }
  release_pages_of_flush(waits);
}

void ReferenceAllocator::empty_cache() { flush(); }

void ReferenceAllocator::trim(std::size_t target_bytes) {
  poll();
  while (held_ > target_bytes) {
    auto largest = segments_.end();
    for (auto segment = segments_.begin(); segment != segments_.end(); ++segment)
      if (!segment->is_split() && segment->blocks[0].free() && gives_back(segment->pool) &&
          (largest == segments_.end() || segment->bytes > largest->bytes))
        largest = segment;
    if (largest == segments_.end()) return release_pages_of_trim(held_ - target_bytes);
    release(largest);
  }
}

bool ReferenceAllocator::release_available(std::size_t rounded, int stream, bool small, int pool) {
  const std::size_t oversize = options_.max_split_size_bytes;
  if (oversize == kUnlimited) return false;
  const std::size_t wanted = std::max(rounded, oversize);
  std::vector<std::list<ModelSegment>::iterator> candidates;
  for (auto segment = segments_.begin(); segment != segments_.end(); ++segment)
    if (segment->stream == stream && segment->small == small && segment->pool == pool && !segment->is_split() &&
        segment->blocks[0].free() && segment->bytes >= oversize)
      candidates.push_back(segment);
  std::sort(candidates.begin(), candidates.end(),
            [](auto a, auto b) { return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address; });
  for (auto segment : candidates)
    if (segment->bytes >= wanted) {
      release(segment);
      return true;
    }
  std::size_t sum = 0;
  while (!candidates.empty() && sum < wanted) {
    sum += candidates.back()->bytes;
    release(candidates.back());
    candidates.pop_back();
  }
  return sum >= wanted;
}

void ReferenceAllocator::collect_garbage() {
  const auto threshold = static_cast<std::size_t>(options_.garbage_collection_threshold * static_cast<double>(limit_));
  if (held_ <= threshold) return;
  const std::size_t target = held_ - threshold;
  std::size_t reclaimed = 0;
  for (bool released = true; reclaimed < target && released;) {
    released = false;
    std::vector<std::list<ModelSegment>::iterator> candidates;
    std::uint64_t total_age = 0;
    for (auto segment = segments_.begin(); segment != segments_.end(); ++segment)
      if (!segment->small && segment->pool == 0 && !segment->is_split() && segment->blocks[0].free()) {
        candidates.push_back(segment);
        total_age += searches_[0] - segment->blocks[0].free_since;
      }
    for (auto segment : candidates) {
      const std::uint64_t age = searches_[0] - segment->blocks[0].free_since;
      if (static_cast<double>(age) < static_cast<double>(total_age) / static_cast<double>(candidates.size())) continue;
      reclaimed += segment->bytes;
      release(segment);
      released = true;
    }
  }
}

// Giving memory back makes the device finish everything first.
void ReferenceAllocator::release(std::list<ModelSegment>::iterator segment) {
  for (const auto& [stream, position] : queued_) done_[stream] = position;
  held_ -= segment->bytes;
  ++stats_.num_device_free;
  change(&MemoryStats::segment, segment->small, -1);
  change(&MemoryStats::reserved_bytes, segment->small, -number(segment->bytes));
  if (segment->bytes >= options_.max_split_size_bytes) change(&MemoryStats::oversize_segments, -1);
  segments_.erase(segment);
}

}  // namespace cistern::model
