#pragma once

// Threads that do a round of work at the same moment, and tell how long it took each. They live
// from round to round, as an application's do, so that what an allocator keeps for a thread is warm.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace cistern {

class Workers {
 public:
  explicit Workers(std::size_t count);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Calls `work(i)` on the first `active` threads at once; the others sleep. Returns the mean of the
  // nanoseconds that the active ones took. `work` must not throw. Not to be called from two threads.
  double run(std::size_t active, const std::function<void(std::size_t)>& work);

 private:
  void serve(std::size_t number);
  void await_each_other();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t round_ = 0;
  std::size_t active_ = 0;
  std::size_t busy_ = 0;
  bool ends_ = false;
  const std::function<void(std::size_t)>* work_ = nullptr;
  std::atomic<std::size_t> ready_{0};
  std::vector<double> nanoseconds_;
  std::vector<std::thread> threads_;
};

}  // namespace cistern
