// Garbage collection by age: gives back cached segments that have not been wanted for
// long, before the limit is reached. It does not wait for pending frees.

#include "allocator/device_allocator.h"

namespace cistern {

bool DeviceAllocator::collects_garbage() const {
  return limit_bytes_ != kUnlimited && options_.garbage_collection_threshold > 0.0;
}

// Whole free segments of the default pool's large half whose age (searches of the pool since they became
// free) is at least the average go, in rounds, until enough are gone. A round does not stop
// at the target, so that the next collection is some way off.
void DeviceAllocator::collect_garbage(Lock& lock) {
  const auto threshold =
      static_cast<std::size_t>(options_.garbage_collection_threshold * static_cast<double>(limit_bytes_));
  if (held_bytes_ <= threshold) return;
  const std::size_t target = held_bytes_ - threshold;

  const std::uint64_t now = searches_[static_cast<std::size_t>(PoolKind::large)];
  std::vector<Segment*> candidates;
  std::uint64_t total_age = 0;
  for (Segment* segment : wholly_free_segments()) {
    if (segment->kind != PoolKind::large || segment->owner->home != nullptr) continue;
    candidates.push_back(segment);
    total_age += now - segment->first->free_since;
  }

  std::vector<Segment*> chosen;
  std::size_t chosen_bytes = 0;
  bool chose_one = true;
  while (chosen_bytes < target && chose_one && !candidates.empty()) {
    const double threshold_age = static_cast<double>(total_age) / static_cast<double>(candidates.size());
    chose_one = false;
    std::erase_if(candidates, [&](Segment* segment) {
      const std::uint64_t age = now - segment->first->free_since;
      if (static_cast<double>(age) < threshold_age) return false;
      chose_one = true;
      chosen_bytes += segment->bytes;
      total_age -= age;
      chosen.push_back(segment);
      return true;
    });
  }
  static_cast<void>(release_segments(chosen, lock));
}

}  // namespace cistern
