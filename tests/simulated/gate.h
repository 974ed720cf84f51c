#pragma once

// Gate: a host function that holds up its stream until the test opens it.

#include <condition_variable>
#include <mutex>

namespace cistern::testing {

class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  // Until a stream has come as far as the gate.
  void wait_until_reached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }
  // To be queued with the gate's address as user data.
  static void pass(void* gate) { static_cast<Gate*>(gate)->wait_until_open(); }

 private:
  void wait_until_open() {
    std::unique_lock lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  bool is_open_ = false;
};

}  // namespace cistern::testing
