#include "bench/workers.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

#include "bench/patience.h"

namespace cistern {
namespace {

// How often the system has taken the processor from this thread, though it had work. Giving it
// up, as who waits for a mutex does, is not counted.
long interruptions() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

}  // namespace

Workers::Workers(std::size_t count) : rounds_(count) {
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

double Workers::run(std::size_t active, const Work& work, const Work& company) {
  constexpr std::size_t kMostDropped = 600;
  run_once(active, work, company);
  for (; !were_together(active); ++dropped_) {
    if (dropped_ >= kMostDropped) return std::numeric_limits<double>::quiet_NaN();
    run_once(active, work, company);
  }
  double sum = 0;
  for (std::size_t i = 0; i < active; ++i) sum += rounds_[i].nanoseconds();
  return sum / static_cast<double>(active);
}

void Workers::run_once(std::size_t active, const Work& work, const Work& company) {
  std::unique_lock lock(mutex_);
  work_ = &work;
  company_ = &company;
  active_ = busy_ = active;
  ready_.store(0, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  ++round_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return busy_ == 0; });
}

// Began within a tenth of a round of one another, and nobody was interrupted.
bool Workers::were_together(std::size_t active) const {
  const auto end = rounds_.begin() + static_cast<std::ptrdiff_t>(active);
  if (std::any_of(rounds_.begin(), end, [](const Round& round) { return round.was_interrupted; })) return false;
  const auto [first, last] =
      std::minmax_element(rounds_.begin(), end, [](const Round& a, const Round& b) { return a.begin < b.begin; });
  return (last->begin - first->begin) * 10 <= first->end - first->begin;
}

Workers::Round Workers::timed(std::size_t number) {
  ready_.fetch_add(1, std::memory_order_acq_rel);
  for (Patience patience; ready_.load(std::memory_order_acquire) < active_;) patience.spend();
  Round round;
  const long before = interruptions();
  round.begin = Clock::now();
  (*work_)(number);
  round.end = Clock::now();
  round.was_interrupted = interruptions() != before;
  done_.fetch_add(1, std::memory_order_acq_rel);
  while (*company_ && done_.load(std::memory_order_acquire) < active_) (*company_)(number);
  return round;
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
    const Round round = timed(number);
    lock.lock();
    rounds_[number] = round;
    if (--busy_ == 0) changed_.notify_all();
  }
}

}  // namespace cistern
