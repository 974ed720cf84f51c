#pragma once

// The calling thread's stack as raw return addresses.
//
// Two ways: along the chain of frame pointers, some nanoseconds, which shows all callers only if
// every function on the way keeps one; or by the unwind tables, which every function has, in some
// hundred nanoseconds a frame. A chain is believed after the tables confirmed it once.
//
// Thread safety: everything here may be called from any thread. Never throws.

#include "stats/raw_stack_table.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace cistern {

inline constexpr std::size_t kMaxStackFrames = 128;

struct CapturedStack : RawStack {
  bool by_tables = false;
  std::uint64_t ticks = 0;  // of TickClock that it took; 0: not measured
};

// Up to `most` frames into `frames`, the caller's first: where this call returns to. O(frames).
[[nodiscard]] CapturedStack capture_stack(std::uintptr_t* frames, std::size_t most) noexcept;

// A stack that is gathered where it is made, or not.
class GatheredStack {
 public:
  // Inline, so that the first frame is that of the caller.
  [[gnu::always_inline]] GatheredStack(bool wanted, std::size_t most) noexcept {
    if (wanted) [[unlikely]]
      stack_ = capture_stack(frames_.data(), most);
  }
  GatheredStack(const GatheredStack&) = delete;
  GatheredStack& operator=(const GatheredStack&) = delete;
  [[nodiscard]] const CapturedStack& get() const noexcept { return stack_; }

 private:
  CapturedStack stack_;
  std::array<std::uintptr_t, kMaxStackFrames> frames_;  // not initialised: most calls gather nothing
};

}  // namespace cistern
