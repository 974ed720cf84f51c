#pragma once

// How the statistics of host memory move. Not thread-safe: the heap's lock is held.

#include <cistern/host_allocator.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace cistern {

inline void count_in(Stat& stat, std::size_t amount) noexcept {
  stat.current += static_cast<std::int64_t>(amount);
  stat.peak = std::max(stat.peak, stat.current);
  stat.allocated += static_cast<std::int64_t>(amount);
}
inline void count_out(Stat& stat, std::size_t amount) noexcept {
  stat.current -= static_cast<std::int64_t>(amount);
  stat.freed += static_cast<std::int64_t>(amount);
}

// A call's time. A shortest time of 0 is none yet, as in PyTorch.
inline void count_call(HostCallTimes& times, std::chrono::steady_clock::duration took) noexcept {
  const std::int64_t microseconds = std::chrono::duration_cast<std::chrono::microseconds>(took).count();
  times.total += microseconds;
  times.max = std::max(times.max, microseconds);
  times.min = times.min == 0 ? microseconds : std::min(times.min, microseconds);
  ++times.count;
}

// visit(Stat&) for each.
template <class Visit>
void visit_stats(HostMemoryStats& stats, Visit&& visit) noexcept {
  for (Stat* stat : {&stats.allocations, &stats.allocated_bytes, &stats.active_requests, &stats.active_bytes})
    visit(*stat);
}

inline void reset_peaks(HostMemoryStats& stats) noexcept {
  visit_stats(stats, [](Stat& stat) { stat.peak = stat.current; });
  for (HostCallTimes* times : {&stats.host_alloc_time, &stats.host_free_time}) times->min = times->max = 0;
}
inline void reset_accumulated(HostMemoryStats& stats) noexcept {
  visit_stats(stats, [](Stat& stat) { stat.allocated = stat.freed = 0; });
  stats.num_host_alloc = stats.num_host_free = 0;
  for (HostCallTimes* times : {&stats.host_alloc_time, &stats.host_free_time}) times->total = times->count = 0;
}

}  // namespace cistern
