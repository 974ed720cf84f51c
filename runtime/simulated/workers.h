#pragma once

// Workers: the threads of a free-running driver. There are as many as have been busy at once:
// a function that blocks keeps its thread, and another takes what is ready meanwhile.
//
// Thread safety: engage and size need the lock held; stop needs it free.

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace cistern::simulated {

class Workers {
 public:
  using Lock = std::unique_lock<std::mutex>;
  // Runs the first piece of work that is ready, letting go of the lock meanwhile; false if
  // there is none.
  using RunOne = std::function<bool(Lock& lock)>;

  // Starts the first thread. Throws std::system_error if the system gives none.
  Workers(std::mutex& mutex, RunOne run_one);
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // `ready` pieces of work are ready and taken by nobody yet: wakes or starts as many threads,
  // but has no more than `most` of them. If the system gives no more threads, work waits for
  // one that is busy.
  void engage(std::size_t ready, std::size_t most) noexcept;
  // Takes no further work, and waits for the functions that run. Idempotent.
  void stop();
  [[nodiscard]] std::size_t size() const noexcept { return threads_.size(); }

 private:
  void start();
  void work();

  std::mutex& mutex_;
  RunOne run_one_;
  std::condition_variable ready_;
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;  // waiting for work, or started and about to look for some
  bool stopping_ = false;
};

}  // namespace cistern::simulated
