#pragma once

// The processor's time-stamp counter: what tells the time of one operation of some nanoseconds.

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace cistern {

// Not before earlier instructions are done, and not after later ones have begun.
inline std::uint64_t time_stamp() noexcept {
#if defined(__x86_64__)
  _mm_lfence();
  const std::uint64_t ticks = __rdtsc();
  _mm_lfence();
  return ticks;
#elif defined(__aarch64__)
  std::uint64_t ticks = 0;
  asm volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks)::"memory");
  return ticks;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// Of one tick, measured against the steady clock over 20 ms, once a process.
inline double nanoseconds_a_tick() {
  static const double nanoseconds = [] {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    const std::uint64_t first = time_stamp();
    auto end = start;
    while (end - start < std::chrono::milliseconds(20)) end = Clock::now();
    const std::uint64_t last = time_stamp();
    return std::chrono::duration<double, std::nano>(end - start).count() / static_cast<double>(last - first);
  }();
  return nanoseconds;
}

}  // namespace cistern
