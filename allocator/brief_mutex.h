#pragma once

// BriefMutex: a lock for a few instructions. Who finds it taken looks again some times before it sleeps, since to
// sleep and to be woken takes thousands of times as long as it is held.
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
    for (int look = 0; look < kLooks; ++look) {
      if (mutex_.try_lock()) return;
      pause();
    }
    mutex_.lock();
  }
  void unlock() { mutex_.unlock(); }

 private:
  // Some microseconds, which is longer than its holder needs unless it was stopped.
  static constexpr int kLooks = 200;

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
