// Garbage collection by age: gives back cached segments that have not been wanted for
// long, before the limit is reached. It does not wait for pending frees. Handles of paged memory have no age: of them
// as many as are needed.

#include "allocator/device_allocator.h"

#include <utility>

namespace cistern {

// Whole free segments of the default pool's large half whose age (searches of the pool since they became
// free) is at least the average go, in rounds, until enough are gone. A round does not stop
// at the target, so that the next collection is some way off.
void DeviceAllocator::collect_garbage(Lock& lock) {
  const auto threshold =
      static_cast<std::size_t>(options_.garbage_collection_threshold * static_cast<double>(limit_bytes_));
  if (held_bytes_ <= threshold) return;
  const std::size_t target = held_bytes_ - threshold;

  const std::uint64_t now = searches_.of(PoolKind::large);
  SegmentList candidates;
  std::size_t count = 0;
  std::uint64_t total_age = 0;
  SegmentList free = wholly_free_segments();
  while (Segment* segment = free.pop_front()) {
    if (segment->kind != PoolKind::large || segment->owner->home != nullptr) continue;
    candidates.push_back(segment);
    ++count;
    total_age += now - segment->free_since;
  }

  SegmentList chosen;
  std::size_t chosen_bytes = 0;
  bool chose_one = true;
  while (chosen_bytes < target && chose_one && count != 0) {
    const double threshold_age = static_cast<double>(total_age) / static_cast<double>(count);
    chose_one = false;
    SegmentList younger;
    while (Segment* segment = candidates.pop_front()) {
      const std::uint64_t age = now - segment->free_since;
      if (static_cast<double>(age) < threshold_age) {
        younger.push_back(segment);
        continue;
      }
      chose_one = true;
      chosen_bytes += segment->bytes;
      total_age -= age;
      --count;
      chosen.push_back(segment);
    }
    candidates = std::move(younger);
  }
  static_cast<void>(release_segments(std::move(chosen), lock));
  if (chosen_bytes < target && !capture_under_way()) static_cast<void>(release_paged(target - chosen_bytes, lock));
}

}  // namespace cistern
