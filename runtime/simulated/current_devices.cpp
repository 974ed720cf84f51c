#include "runtime/simulated/current_devices.h"

#include <atomic>

#include "runtime/simulated/thread_numbers.h"

namespace cistern::simulated {
namespace {

// What the thread asked last: it rarely uses more than one driver at a time.
struct LastAnswer {
  std::uint64_t driver = 0;
  int device = -1;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local LastAnswer last_answer;

}  // namespace

std::uint64_t next_driver_number() noexcept {
  static std::atomic<std::uint64_t> drivers{0};
  return ++drivers;
}

int CurrentDevices::get() const {
  if (last_answer.driver != driver_) {
    const std::lock_guard lock(mutex_);
    const auto found = by_thread_.find(this_thread_number());
    last_answer = LastAnswer{driver_, found == by_thread_.end() ? -1 : found->second.back()};
  }
  return last_answer.device;
}

void CurrentDevices::set(int device) {
  if (device < 0) {
    static_cast<void>(pop());
    return;
  }
  const std::lock_guard lock(mutex_);
  std::vector<int>& stack = by_thread_[this_thread_number()];
  if (stack.empty()) stack.push_back(device);
  stack.back() = device;
  last_answer = LastAnswer{driver_, device};
}

void CurrentDevices::push(int device) {
  const std::lock_guard lock(mutex_);
  by_thread_[this_thread_number()].push_back(device);
  last_answer = LastAnswer{driver_, device};
}

int CurrentDevices::pop() {
  const std::lock_guard lock(mutex_);
  last_answer = LastAnswer{driver_, -1};
  const auto found = by_thread_.find(this_thread_number());
  if (found == by_thread_.end()) return -1;
  std::vector<int>& stack = found->second;
  const int top = stack.back();
  stack.pop_back();
  if (stack.empty()) {
    by_thread_.erase(found);
  } else {
    last_answer.device = stack.back();
  }
  return top;
}

void CurrentDevices::forget(std::uint64_t thread) {
  const std::lock_guard lock(mutex_);
  by_thread_.erase(thread);
}

std::size_t CurrentDevices::threads() const {
  const std::lock_guard lock(mutex_);
  return by_thread_.size();
}

}  // namespace cistern::simulated
