#include "allocator/observers.h"

#include <algorithm>

namespace cistern {
namespace {

template <class List>
bool remove_from(List& list, ObserverId id) {
  const auto place = std::find_if(list.begin(), list.end(), [&](const auto& entry) { return entry.first == id; });
  if (place == list.end()) return false;
  list.erase(place);
  return true;
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
  return ObserverId{++last_id_};
}

bool Observers::remove(ObserverId id) {
  const std::lock_guard lock(mutex_);
  return remove_from(out_of_memory_, id) || remove_from(free_memory_, id);
}

bool Observers::has_free_memory_callbacks() const {
  const std::lock_guard lock(mutex_);
  return !free_memory_.empty();
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
