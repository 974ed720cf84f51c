#include "allocator/pool_routing.h"

#include <algorithm>
#include <atomic>

namespace cistern {

std::uint64_t thread_number() noexcept {
  static std::atomic<std::uint64_t> threads{0};
  thread_local const std::uint64_t number = ++threads;
  return number;
}

bool PoolRouting::is_recorded(PoolId id) const {
  return std::any_of(recordings_.begin(), recordings_.end(),
                     [id](const Recording& recording) { return recording.guard == 0 && recording.pool->id == id; });
}

void PoolRouting::add(const Recording& recording) {
  recordings_.push_back(recording);
  ++recording.pool->dependents;
}

template <class Matches>
bool PoolRouting::remove_if(Matches&& matches) noexcept {
  const auto place = std::find_if(recordings_.begin(), recordings_.end(), matches);
  if (place == recordings_.end()) return false;
  --place->pool->dependents;
  recordings_.erase(place);
  return true;
}

bool PoolRouting::remove(PoolId id) noexcept {
  return remove_if([id](const Recording& recording) { return recording.guard == 0 && recording.pool->id == id; });
}

bool PoolRouting::remove_guard(std::uint64_t guard) noexcept {
  return remove_if([guard](const Recording& recording) { return recording.guard == guard; });
}

bool PoolRouting::may_take(const StreamIdentity& stream) const noexcept {
  return std::any_of(recordings_.begin(), recordings_.end(), [&](const Recording& recording) {
    switch (recording.filter.kind) {
      case RecordingFilter::Kind::thread:
        return recording.thread == thread_number();
      case RecordingFilter::Kind::stream:
        return recording.filter.stream_id == stream.id;
      case RecordingFilter::Kind::capture:
      case RecordingFilter::Kind::every:
        break;
    }
    return true;
  });
}

bool PoolRouting::capture_under_way(bool on_any_thread) const noexcept {
  return std::any_of(recordings_.begin(), recordings_.end(), [&](const Recording& recording) {
    return on_any_thread ? recording.guard == 0 : recording.is_capture() && recording.thread == thread_number();
  });
}

}  // namespace cistern
