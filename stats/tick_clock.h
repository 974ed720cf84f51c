#pragma once

// A clock that costs a few nanoseconds to read: the processor's counter, made into time only
// when somebody looks.
//
// Thread safety: everything may be called from any thread.

#include <chrono>
#include <cstdint>
#include <ctime>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace cistern {

class TickClock {
 public:
  // All of a process agree: the first one made looks what the processor has.
  TickClock() noexcept;

  [[nodiscard]] std::uint64_t now() const noexcept { return has_counter_ ? counter() : monotonic_ns(); }
  // Whether `now` is one instruction of the processor's, counter().
  [[nodiscard]] bool has_counter() const noexcept { return has_counter_; }
  [[nodiscard, gnu::always_inline]] static std::uint64_t counter() noexcept {
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    std::uint64_t ticks = 0;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return monotonic_ns();
#endif
  }

  // The counter and another clock at one moment.
  struct Anchor {
    std::uint64_t ticks = 0;
    std::int64_t ns = 0;
  };
  // Turns ticks that were read before it was made into time. What the wall clock says now is taken
  // as right: a clock that was set meanwhile moves all of a history, and never its order.
  class Conversion {
   public:
    explicit Conversion(const TickClock& clock) noexcept;
    // Microseconds since the Unix epoch.
    [[nodiscard]] std::int64_t unix_us(std::uint64_t ticks) const noexcept;
    [[nodiscard]] std::chrono::steady_clock::time_point steady(std::uint64_t ticks) const noexcept;
    [[nodiscard]] double ns_per_tick() const noexcept { return ns_per_tick_; }

   private:
    [[nodiscard]] std::int64_t ns_at(const Anchor& anchor, std::uint64_t ticks) const noexcept;

    Anchor steady_;
    Anchor unix_;
    double ns_per_tick_ = 1.0;
  };

 private:
  [[nodiscard]] static std::uint64_t monotonic_ns() noexcept {
    std::timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
  }

  bool has_counter_;
};

}  // namespace cistern
