#include "stats/tick_clock.h"

#include <algorithm>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace cistern {
namespace {

// Whether the counter runs at one rate, whatever the processor's speed and sleep.
bool counter_is_steady() noexcept {
#if defined(__x86_64__)
  // Intel's manual, volume 2, CPUID leaf 80000007H: EDX bit 8, the invariant time-stamp counter.
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(0x80000007U, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
#elif defined(__aarch64__)
  return true;  // the architecture's generic timer
#else
  return false;
#endif
}

std::int64_t ns_of(clockid_t clock) noexcept {
  std::timespec time{};
  clock_gettime(clock, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

using Anchor = TickClock::Anchor;

// The closest of several: a thread may be put aside between two readings.
Anchor read_anchor(const TickClock& clock, clockid_t of) noexcept {
  Anchor best;
  std::uint64_t narrowest = ~std::uint64_t{0};
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t before = clock.now();
    const std::int64_t ns = ns_of(of);
    const std::uint64_t after = clock.now();
    if (after - before >= narrowest) continue;
    narrowest = after - before;
    best = {before + narrowest / 2, ns};
  }
  return best;
}

// Of the first clock of the process: the longer ago, the better the rate is known.
const Anchor& first_anchor(const TickClock& clock) noexcept {
  static const Anchor anchor = read_anchor(clock, CLOCK_MONOTONIC);
  return anchor;
}

}  // namespace

TickClock::TickClock() noexcept {
  static const bool steady = counter_is_steady();
  has_counter_ = steady;
  static_cast<void>(first_anchor(*this));
}

TickClock::Conversion::Conversion(const TickClock& clock) noexcept {
  const Anchor first = first_anchor(clock);
  steady_ = read_anchor(clock, CLOCK_MONOTONIC);
  unix_ = read_anchor(clock, CLOCK_REALTIME);
  if (steady_.ticks > first.ticks && steady_.ns > first.ns)
    ns_per_tick_ = static_cast<double>(steady_.ns - first.ns) / static_cast<double>(steady_.ticks - first.ticks);
}

std::int64_t TickClock::Conversion::ns_at(const Anchor& anchor, std::uint64_t ticks) const noexcept {
  const auto ago = static_cast<double>(static_cast<std::int64_t>(anchor.ticks - ticks)) * ns_per_tick_;
  return anchor.ns - static_cast<std::int64_t>(ago);
}

std::int64_t TickClock::Conversion::unix_us(std::uint64_t ticks) const noexcept { return ns_at(unix_, ticks) / 1000; }

// Linux's steady clock is CLOCK_MONOTONIC, from which the anchor is.
std::chrono::steady_clock::time_point TickClock::Conversion::steady(std::uint64_t ticks) const noexcept {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns_at(steady_, ticks)));
}

}  // namespace cistern
