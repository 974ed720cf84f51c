#pragma once

// HostAtomics: what structures that are read and written without a lock need of the machine, where that is atomics and
// a way to wait. Tests have processors of their own, which take one step at a time.

#include <atomic>
#include <thread>

namespace cistern {

struct HostAtomics {
  template <class T>
  using Atomic = std::atomic<T>;
  static void wait(unsigned) noexcept { std::this_thread::yield(); }
};

}  // namespace cistern
