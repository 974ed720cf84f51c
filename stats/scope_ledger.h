#pragma once

// ScopeLedger: the peaks of any number of open scopes, kept at no cost to an allocation.
//
// Time is cut wherever a scope opens. The recorder keeps the peaks since the last cut, as it would
// without scopes; at a cut they go to the newest scope alone. The peak of a scope is then the
// highest of its own, of those of all newer scopes, and of the recorder's. A scope that ends leaves
// its peaks to the next older one.
// Complexity: O(1), but where it says otherwise. Not thread-safe: the heap that reports holds its lock around every
// call.

#include <cistern/stats.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace cistern {

// The peak of each Stat of MemoryStats, in the order of visit_stats.
class StatPeaks {
 public:
  StatPeaks() { peaks_.fill(std::numeric_limits<std::int64_t>::min()); }
  // Takes in the peaks of `stats`, or another's.
  void raise(const MemoryStats& stats);
  void raise(const StatPeaks& other);
  // Lifts the peaks of `stats` to these.
  void apply_to(MemoryStats& stats) const;

 private:
  std::array<std::int64_t, 29> peaks_;
};

// One scope, in its opener's memory; linked while it is open, and not to be moved then.
struct OpenScope {
  MemoryStats at_start;  // all that ever was, when it opened
  StatPeaks peaks;       // while it was the newest, but for the time since the last cut
  OpenScope* older = nullptr;
  OpenScope* newer = nullptr;
};

class ScopeLedger {
 public:
  // Time is cut: `stats` has the peaks since the last cut.
  void cut(const MemoryStats& stats) {
    if (newest_ != nullptr) newest_->peaks.raise(stats);
  }
  // Requires: time was cut just now.
  void open(OpenScope& scope, const MemoryStats& at_start);
  void close(OpenScope& scope);
  // Of the scope, up to the last cut. O(scopes that opened after it).
  [[nodiscard]] StatPeaks peaks(const OpenScope& scope) const;

 private:
  OpenScope* newest_ = nullptr;
};

}  // namespace cistern
