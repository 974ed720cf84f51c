#pragma once

// BriefMutex: a lock for a few instructions. Who finds it taken looks again some times before it sleeps, since to
// sleep and to be woken takes thousands of times as long as it is held.
//
// Not recursive. A BasicLockable. O(1).

#include <algorithm>
#include <mutex>

namespace cistern {

// `kMostPauses`: of the processor, between two looks. Where that is more than one who waits looks less and less often:
// each look takes the cache line from the holder, and who has all that the lock guards in its cache may have it several
// times in a row.
template <int kMostPauses>
class BasicBriefMutex {
 public:
  BasicBriefMutex() = default;
  BasicBriefMutex(const BasicBriefMutex&) = delete;
  BasicBriefMutex& operator=(const BasicBriefMutex&) = delete;

  void lock() {
    int pauses = 1;
    for (int paused = 0; paused < kPauses; paused += pauses) {
      if (mutex_.try_lock()) return;
      for (int i = 0; i < pauses; ++i) pause();
      pauses = std::min(2 * pauses, kMostPauses);
    }
    mutex_.lock();
  }
  void unlock() { mutex_.unlock(); }

 private:
  // Some microseconds, and for a lock that is held longer some tens of these: more than its holder needs unless it was
  // stopped.
  static constexpr int kPauses = kMostPauses == 1 ? 200 : 1200;

  // Leaves the processor to its other thread, and the lock's cache line to its holder, for some cycles.
  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
  }

  std::mutex mutex_;
};

using BriefMutex = BasicBriefMutex<1>;

}  // namespace cistern
