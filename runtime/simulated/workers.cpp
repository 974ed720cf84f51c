#include "runtime/simulated/workers.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace cistern::simulated {

Workers::Workers(std::mutex& mutex, RunOne run_one) : mutex_(mutex), run_one_(std::move(run_one)) {
  const Lock lock(mutex_);
  start();
}

void Workers::start() {
  threads_.emplace_back([this] { work(); });
  ++idle_;
}

void Workers::engage(std::size_t ready, std::size_t most) noexcept {
  if (stopping_) return;
  for (std::size_t i = 0; i < std::min(ready, idle_); ++i) ready_.notify_one();
  try {
    while (idle_ < ready && threads_.size() < most) start();
  } catch (const std::exception&) {
    // No thread or no memory to be had.
  }
}

void Workers::work() {
  Lock lock(mutex_);
  --idle_;
  while (!stopping_) {
    if (run_one_(lock)) continue;
    ++idle_;
    ready_.wait(lock);
    --idle_;
  }
}

void Workers::stop() {
  std::vector<std::thread> threads;
  {
    const Lock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  ready_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace cistern::simulated
