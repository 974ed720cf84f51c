#include "allocator/observers.h"

#include <algorithm>

namespace cistern {
namespace {

// Takes the entry of that id out, if it is there: its callback is destroyed by the caller.
template <class List>
List take_from(List& list, ObserverId id) {
  List taken;
  const auto place = std::find_if(list.begin(), list.end(), [&](const auto& entry) { return entry.first == id; });
  if (place == list.end()) return taken;
  taken.push_back(std::move(*place));
  list.erase(place);
  return taken;
}

}  // namespace

ObserverId Observers::add(OutOfMemoryObserver observer) {
  const std::lock_guard lock(mutex_);
  out_of_memory_.emplace_back(ObserverId{last_id_ + 1}, std::move(observer));
  return ObserverId{++last_id_};
}

ObserverId Observers::add(FreeMemoryCallback callback) {
  const std::lock_guard lock(mutex_);
  free_memory_.emplace_back(ObserverId{last_id_ + 1}, std::move(callback));
  ++callback_count_;
  return ObserverId{++last_id_};
}

bool Observers::remove(ObserverId id) {
  std::unique_lock lock(mutex_);
  const auto observers = take_from(out_of_memory_, id);
  const auto callbacks = take_from(free_memory_, id);
  callback_count_ -= callbacks.size();
  // A callback may own whatever runs code when it ends: that must not happen under the lock.
  lock.unlock();
  return !observers.empty() || !callbacks.empty();
}

bool Observers::free_memory(int device, std::size_t bytes) const {
  std::unique_lock lock(mutex_);
  const auto callbacks = free_memory_;
  lock.unlock();
  bool freed = false;
  for (const auto& [id, callback] : callbacks) {
    try {
      freed = callback(device, bytes) || freed;
    } catch (...) {  // a callback that fails gave nothing back; the request goes on without it
    }
  }
  return freed;
}

void Observers::out_of_memory(const OutOfMemoryReport& report) const {
  std::unique_lock lock(mutex_);
  const auto observers = out_of_memory_;
  lock.unlock();
  for (const auto& [id, observer] : observers) {
    try {
      observer(report);
    } catch (...) {  // the caller must get the OutOfMemoryError, whatever an observer does
    }
  }
}

}  // namespace cistern
