// The executable specification of private pools: of captures, and MemPools.

#include "reference_allocator.h"

#include <algorithm>
#include <iterator>

namespace cistern::model {

int ReferenceAllocator::route(int stream) const {
  int pool = 0;
  for (const ModelRecording& recording : recordings_) {
    if (recording.stream >= 0 && recording.stream != stream) continue;
    if (pool == 0 || !follows_2_4()) pool = recording.pool;
  }
  return pool;
}

// A MemPool restricts nobody; under the older rules every recording that was begun by id does.
bool ReferenceAllocator::capturing() const {
  return std::any_of(recordings_.begin(), recordings_.end(), [&](const ModelRecording& recording) {
    return !recording.by_guard && (follows_2_4() || !pools_.at(recording.pool).is_mem_pool);
  });
}

std::optional<ReferenceAllocator::Place> ReferenceAllocator::find_overflow(std::size_t rounded, int stream, bool small,
                                                                           int pool) {
  std::optional<Place> place;
  if (pool == 0)
    for (const auto& [number, settings] : pools_)
      if (!place && settings.use_on_oom) place = find_free(rounded, stream, small, number);
  return place;
}

void ReferenceAllocator::begin(int pool, int stream) {
  ++pools_[pool].uses;
  recordings_.push_back({pool, stream, false});
}

void ReferenceAllocator::end(int pool) {
  recordings_.erase(std::find_if(recordings_.begin(), recordings_.end(), [&](const ModelRecording& recording) {
    return !recording.by_guard && recording.pool == pool;
  }));
  if (leftovers_) release_leftovers();
}

void ReferenceAllocator::release_pool(int pool) { --pools_[pool].uses; }

void ReferenceAllocator::make_mem_pool(int pool, const ModelPool& settings) {
  pools_[pool] = settings;
  pools_[pool].is_mem_pool = true;
  pools_[pool].uses = 1;
}

void ReferenceAllocator::enter(int pool) {
  ++pools_[pool].uses;
  recordings_.push_back({pool, -1, true});
}

void ReferenceAllocator::leave() {
  const auto guard = std::find_if(recordings_.rbegin(), recordings_.rend(),
                                  [](const ModelRecording& recording) { return recording.by_guard; });
  const int pool = guard->pool;
  recordings_.erase(std::next(guard).base());
  take_use(pool);
}

void ReferenceAllocator::take_use(int pool) {
  if (--pools_[pool].uses == 0) release_leftovers();
}

// Free segments of MemPools without a use go to the nearest parent that has one, or back.
void ReferenceAllocator::release_leftovers() {
  leftovers_ = capturing();
  if (leftovers_) return;
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto next = std::next(segment);
    int pool = segment->pool;
    if (pool != 0 && uses(pool) == 0 && pools_[pool].is_mem_pool && !segment->is_split() && segment->blocks[0].free()) {
      while (pool != 0 && uses(pool) == 0) pool = pools_[pool].parent;
      segment->pool = pool;
      if (pool == 0) release(segment);
    }
    segment = next;
  }
  move_leftover_ranges();
}

}  // namespace cistern::model
