#include "allocator/fork_locks.h"

#include "allocator/device_heaps.h"
#include "stats/tags.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

namespace cistern {
namespace {

// Never destroyed: code that runs at exit may fork.
struct Registered {
  std::mutex mutex;
  std::vector<DeviceHeaps*> heaps;
};
Registered& registered() {
  static Registered& all = *new Registered;
  return all;
}

void before_fork() {
  registered().mutex.lock();
  for (DeviceHeaps* heaps : registered().heaps) heaps->lock_for_fork();
  tag_registry().lock_for_fork();
}

void after_fork() {
  tag_registry().unlock_after_fork();
  for (DeviceHeaps* heaps : registered().heaps) heaps->unlock_after_fork();
  registered().mutex.unlock();
}

}  // namespace

ForkLocks::ForkLocks(DeviceHeaps& heaps) : heaps_(heaps) {
  static const int watches_forks = pthread_atfork(before_fork, after_fork, after_fork);
  if (watches_forks != 0) throw std::bad_alloc();
  const std::lock_guard lock(registered().mutex);
  registered().heaps.push_back(&heaps);
}

void ForkLocks::end() noexcept {
  const std::lock_guard lock(registered().mutex);
  std::vector<DeviceHeaps*>& all = registered().heaps;
  all.erase(std::remove(all.begin(), all.end(), &heaps_), all.end());
}

}  // namespace cistern
