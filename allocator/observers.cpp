#include "allocator/observers.h"

#include <algorithm>

namespace cistern {
namespace {

thread_local bool observing = false;
thread_local bool freeing = false;

}  // namespace

template <class Callback>
Observers::List<Callback> Observers::with(const List<Callback>& list, ObserverId id, Callback callback) {
  auto longer = list ? *list : std::vector<std::pair<ObserverId, Callback>>();
  longer.emplace_back(id, std::move(callback));
  return std::make_shared<const std::vector<std::pair<ObserverId, Callback>>>(std::move(longer));
}

// The same list if it has no such entry.
template <class Callback>
Observers::List<Callback> Observers::without(const List<Callback>& list, ObserverId id) {
  const auto is_that = [id](const auto& entry) { return entry.first == id; };
  if (!list || std::none_of(list->begin(), list->end(), is_that)) return list;
  auto shorter = *list;
  std::erase_if(shorter, is_that);
  return std::make_shared<const std::vector<std::pair<ObserverId, Callback>>>(std::move(shorter));
}

ObserverId Observers::add(OutOfMemoryObserver observer) {
  const std::lock_guard lock(mutex_);
  out_of_memory_ = with(out_of_memory_, ObserverId{last_id_ + 1}, std::move(observer));
  return ObserverId{++last_id_};
}

ObserverId Observers::add(FreeMemoryCallback callback) {
  const std::lock_guard lock(mutex_);
  free_memory_ = with(free_memory_, ObserverId{last_id_ + 1}, std::move(callback));
  ++callback_count_;
  return ObserverId{++last_id_};
}

bool Observers::remove(ObserverId id) {
  std::unique_lock lock(mutex_);
  auto observers = without(out_of_memory_, id);
  auto callbacks = without(free_memory_, id);
  const bool removed = observers != out_of_memory_ || callbacks != free_memory_;
  callback_count_ = callbacks ? callbacks->size() : 0;
  out_of_memory_.swap(observers);
  free_memory_.swap(callbacks);
  // A callback may own whatever runs code when it ends: the old lists end without the lock.
  lock.unlock();
  return removed;
}

bool Observers::free_memory(int device, std::size_t bytes) const {
  if (freeing) return false;
  std::unique_lock lock(mutex_);
  const auto callbacks = free_memory_;
  lock.unlock();
  bool freed = false;
  if (!callbacks) return freed;
  freeing = true;
  for (const auto& [id, callback] : *callbacks) {
    try {
      freed = callback(device, bytes) || freed;
    } catch (...) {  // a callback that fails gave nothing back; the request goes on without it
    }
  }
  freeing = false;
  return freed;
}

void Observers::out_of_memory(const OutOfMemoryReport& report) const {
  std::unique_lock lock(mutex_);
  const auto observers = out_of_memory_;
  lock.unlock();
  if (!observers) return;
  observing = true;
  for (const auto& [id, observer] : *observers) {
    try {
      observer(report);
    } catch (...) {  // the caller must get the OutOfMemoryError, whatever an observer does
    }
  }
  observing = false;
}

bool Observers::is_observing() noexcept { return observing; }

}  // namespace cistern
