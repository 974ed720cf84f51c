#pragma once

// Threads that do a round of work at the same moment, and tell how long it took each. They live
// from round to round, as an application's do, so that what an allocator keeps for a thread is warm.

#include <atomic>
#include <chrono>
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

  using Work = std::function<void(std::size_t thread)>;
  // Calls `work(i)` on the first `active` threads at once; the others sleep. Returns the mean of the
  // nanoseconds that the active ones took. Who is done calls `company(i)` until all are, off the clock,
  // so that no one's work is timed alone. Neither may throw. Not to be called from two threads.
  // On a busy machine threads do not run at the same moment only because they could: a round in which
  // they did not is dropped and done again, and not a number when there have been too many of those.
  double run(std::size_t active, const Work& work, const Work& company = {});
  [[nodiscard]] std::size_t dropped() const { return dropped_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Round {
    Clock::time_point begin;
    Clock::time_point end;
    bool was_interrupted = false;
    [[nodiscard]] double nanoseconds() const { return std::chrono::duration<double, std::nano>(end - begin).count(); }
  };
  void run_once(std::size_t active, const Work& work, const Work& company);
  [[nodiscard]] bool were_together(std::size_t active) const;
  void serve(std::size_t number);
  Round timed(std::size_t number);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t round_ = 0;
  std::size_t active_ = 0;
  std::size_t busy_ = 0;
  bool ends_ = false;
  const Work* work_ = nullptr;
  const Work* company_ = nullptr;
  std::atomic<std::size_t> ready_{0};
  std::atomic<std::size_t> done_{0};
  std::vector<Round> rounds_;  // the last of each thread
  std::vector<std::thread> threads_;
  std::size_t dropped_ = 0;
};

}  // namespace cistern
