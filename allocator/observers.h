#pragma once

// The callbacks of one allocator. Thread safety: any member may be called from any thread;
// callbacks run with no lock held, on lists that stay as they were, so they may add and remove
// observers. Calling them takes no host memory: there may be none.

#include <cistern/allocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cistern {

class Observers {
 public:
  ObserverId add(OutOfMemoryObserver observer);
  ObserverId add(FreeMemoryCallback callback);
  bool remove(ObserverId id);

  // Whether any free-memory callback is there: asked under a heap's lock, so it takes none.
  [[nodiscard]] bool has_free_memory_callbacks() const noexcept { return callback_count_ != 0; }
  // Calls every callback; true if any gave memory back. What one throws counts as "none". Of a request that one of
  // them makes itself, none is called: that would not end.
  bool free_memory(int device, std::size_t bytes) const;
  void out_of_memory(const OutOfMemoryReport& report) const;
  // Whether this thread is in an out-of-memory observer, of whichever allocator.
  [[nodiscard]] static bool is_observing() noexcept;

 private:
  // Replaced whole when it changes: whoever calls holds the one it found.
  template <class Callback>
  using List = std::shared_ptr<const std::vector<std::pair<ObserverId, Callback>>>;
  template <class Callback>
  static List<Callback> with(const List<Callback>& list, ObserverId id, Callback callback);
  template <class Callback>
  static List<Callback> without(const List<Callback>& list, ObserverId id);

  mutable std::mutex mutex_;
  std::atomic<std::size_t> callback_count_{0};
  std::uint64_t last_id_ = 0;
  List<OutOfMemoryObserver> out_of_memory_;
  List<FreeMemoryCallback> free_memory_;
};

}  // namespace cistern
