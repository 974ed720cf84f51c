#pragma once

// SharedCounts: the lock of the ledger that the streams of one thread share, and for how long they do.
//
// Streams that take turns up to the peaks, or near them, pass the room below these from one to another, and each time
// by a grant of the heap (BlockLedger). Those of one thread count in one ledger then, which needs none; but none of
// them leaves a free for later (LazyFree), for the room that this relies on is all streams'. So they part after a
// while, to see whether there is more room by then. Threads whose streams want the same give way to each other.
// Complexity: O(1). Thread safety: the mutex guards the rest and the recorder's shared ledger against other streams
// that share; it comes behind a stream's. Whoever has the heap's lock has the locks of all of these.

#include "allocator/biased_mutex.h"
#include "allocator/thread_mark.h"

#include <algorithm>
#include <cstdint>

namespace cistern {

class SharedCounts {
 public:
  [[nodiscard]] BiasedMutex& mutex() noexcept { return mutex_; }
  // Those of the thread share from now on: for twice as long as those before, if these came to their end by themselves;
  // else for half.
  void begin(const ThreadMark* thread) noexcept {
    const bool came_to_its_end = is_over() && !gave_way_;
    stay_ = came_to_its_end ? std::min(2 * stay_, kLongestStay) : std::max(stay_ / 2, kFirstStay);
    requests_left_ = stay_;
    thread_ = thread;
    gave_way_ = false;
  }
  // Those of another thread want to.
  void give_way() noexcept {
    requests_left_ /= 2;
    gave_way_ = true;
  }
  [[nodiscard]] bool is_of(const ThreadMark* thread) const noexcept { return thread_ == thread; }
  // Whether a request of the calling thread may be counted there; false: it takes the heap's lock.
  [[nodiscard]] bool takes_request() noexcept {
    if (requests_left_ == 0 || thread_ != ThreadMark::of_this_thread()) return false;
    --requests_left_;
    return true;
  }
  [[nodiscard]] bool is_over() const noexcept { return requests_left_ == 0; }

  static constexpr std::uint64_t kFirstStay = std::uint64_t{1} << 14;  // requests

 private:
  static constexpr std::uint64_t kLongestStay = std::uint64_t{1} << 18;

  BiasedMutex mutex_;
  const ThreadMark* thread_ = nullptr;
  std::uint64_t requests_left_ = 0;
  std::uint64_t stay_ = kFirstStay / 2;
  bool gave_way_ = false;
};

}  // namespace cistern
