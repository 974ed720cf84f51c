#pragma once

// Has the processor bring a cache line that is soon looked at, and mostly written to, while it does other things.
//
// The empty statement is for GCC: a function that does nothing but prefetch counts as one without effects, and a call
// of it is left out (GCC 12 with link-time optimization did so, and steps of paged memory that are not known took a
// tenth longer). Complexity: O(1). Thread-safe.

namespace cistern {

inline void prefetch(const void* address) noexcept {
  __builtin_prefetch(address, 1);
  asm volatile("");
}

}  // namespace cistern
