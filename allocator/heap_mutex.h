#pragma once

// HeapMutex: the lock of a heap whose last free may not have been carried out yet.
//
// Whoever locks it finds the heap as its statistics tell it. The two calls that can make use of the free
// that stands lock with `lock_as_it_is`, and carry it out themselves when they cannot (see LazyFree).
// A BasicLockable; not recursive.

#include "allocator/biased_mutex.h"

namespace cistern {

class DeviceAllocator;

class HeapMutex {
 public:
  explicit HeapMutex(DeviceAllocator& heap) : heap_(heap) {}

  void lock() {
    mutex_.lock();
    settle();
  }
  void unlock() { mutex_.unlock(); }

  void lock_as_it_is() { mutex_.lock(); }
  // Requires: it is held.
  void settle() {
    if (is_lazy_) carry_out();
  }
  // The heap has a LazyFree from now on. Requires: it is held.
  void be_lazy() { is_lazy_ = true; }

 private:
  void carry_out() noexcept;

  BiasedMutex mutex_;
  DeviceAllocator& heap_;
  bool is_lazy_ = false;  // guarded by mutex_
};

}  // namespace cistern
