#pragma once

// BriefMutex: a lock for a few instructions. Who finds it taken looks again some times before it sleeps, since to
// sleep and to be woken takes thousands of times as long as it is held; and ever more seldom, up to a bound, so that
// who has it may take it some times in a row, with what it guards in its own processor's caches.
//
// Not recursive. A BasicLockable. O(1).

#include <mutex>

namespace cistern {

class BriefMutex {
 public:
  BriefMutex() = default;
  BriefMutex(const BriefMutex&) = delete;
  BriefMutex& operator=(const BriefMutex&) = delete;

  void lock() {
    int pauses = 1;
    for (int paused = 0; paused < kPauses; paused += pauses) {
      if (mutex_.try_lock()) return;
      for (int i = 0; i < pauses; ++i) pause();
      if (pauses < kMostBetweenLooks) pauses *= 2;
    }
    mutex_.lock();
  }
  void unlock() { mutex_.unlock(); }

 private:
  // Some microseconds, which is longer than its holder needs unless it was stopped.
  static constexpr int kPauses = 200;
  static constexpr int kMostBetweenLooks = 16;

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

}  // namespace cistern
