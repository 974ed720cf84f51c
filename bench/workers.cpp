#include "bench/workers.h"

#include <numeric>

#include "bench/interleaved.h"

namespace cistern {

Workers::Workers(std::size_t count) : nanoseconds_(count) {
  for (std::size_t i = 0; i < count; ++i) threads_.emplace_back([this, i] { serve(i); });
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

double Workers::run(std::size_t active, const std::function<void(std::size_t)>& work) {
  std::unique_lock lock(mutex_);
  work_ = &work;
  active_ = busy_ = active;
  ready_.store(0, std::memory_order_relaxed);
  ++round_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return busy_ == 0; });
  const auto end = nanoseconds_.begin() + static_cast<std::ptrdiff_t>(active);
  return std::accumulate(nanoseconds_.begin(), end, 0.0) / static_cast<double>(active);
}

// Threads wake up one after the other: they start when the last of them is awake. Where there are
// fewer processors than threads the one that is missing needs this one's.
void Workers::await_each_other() {
  ready_.fetch_add(1, std::memory_order_acq_rel);
  while (ready_.load(std::memory_order_acquire) < active_) std::this_thread::yield();
}

void Workers::serve(std::size_t number) {
  std::size_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || round_ != seen; });
    if (ends_) return;
    seen = round_;
    if (number >= active_) continue;
    lock.unlock();
    await_each_other();
    const double took = nanoseconds_each(1, [&] { (*work_)(number); });
    lock.lock();
    nanoseconds_[number] = took;
    if (--busy_ == 0) changed_.notify_all();
  }
}

}  // namespace cistern
