#include "runtime/simulated/current_devices.h"

#include <atomic>

namespace cistern::simulated {
namespace {

// What the thread asked last: it rarely uses more than one driver at a time.
struct LastAnswer {
  std::uint64_t driver = 0;
  int device = -1;
};
thread_local LastAnswer last_answer;

}  // namespace

std::uint64_t next_driver_number() noexcept {
  static std::atomic<std::uint64_t> drivers{0};
  return ++drivers;
}

std::uint64_t this_thread_number() noexcept {
  static std::atomic<std::uint64_t> threads{0};
  thread_local const std::uint64_t number = ++threads;
  return number;
}

int CurrentDevices::get() const {
  if (last_answer.driver != driver_) {
    const std::lock_guard lock(mutex_);
    const auto found = by_thread_.find(this_thread_number());
    last_answer = LastAnswer{driver_, found == by_thread_.end() ? -1 : found->second};
  }
  return last_answer.device;
}

void CurrentDevices::set(int device) {
  const std::lock_guard lock(mutex_);
  if (device < 0) {
    by_thread_.erase(this_thread_number());
  } else {
    by_thread_[this_thread_number()] = device;
  }
  last_answer = LastAnswer{driver_, device};
}

}  // namespace cistern::simulated
