#include "stats/scope_ledger.h"

#include "stats/fields.h"

#include <algorithm>

namespace cistern {

static_assert(kPoolStatFields.size() * kPoolFields.size() + kStatFields.size() == 29, "a peak for each Stat");

void StatPeaks::raise(const MemoryStats& stats) {
  std::size_t i = 0;
  visit_stats(stats, [&](const Stat& stat) {
    peaks_[i] = std::max(peaks_[i], stat.peak);
    ++i;
  });
}

void StatPeaks::raise(const StatPeaks& other) {
  for (std::size_t i = 0; i < peaks_.size(); ++i) peaks_[i] = std::max(peaks_[i], other.peaks_[i]);
}

void StatPeaks::apply_to(MemoryStats& stats) const {
  std::size_t i = 0;
  visit_stats(stats, [&](Stat& stat) {
    stat.peak = std::max(stat.peak, peaks_[i]);
    ++i;
  });
}

void ScopeLedger::open(OpenScope& scope, const MemoryStats& at_start) {
  scope.at_start = at_start;
  scope.peaks = StatPeaks();
  scope.newer = nullptr;
  scope.older = newest_;
  if (newest_ != nullptr) newest_->newer = &scope;
  newest_ = &scope;
}

void ScopeLedger::close(OpenScope& scope) {
  if (scope.older != nullptr) {
    scope.older->peaks.raise(scope.peaks);
    scope.older->newer = scope.newer;
  }
  (scope.newer == nullptr ? newest_ : scope.newer->older) = scope.older;
  scope.older = scope.newer = nullptr;
}

StatPeaks ScopeLedger::peaks(const OpenScope& scope) const {
  StatPeaks peaks;
  for (const OpenScope* each = &scope; each != nullptr; each = each->newer) peaks.raise(each->peaks);
  return peaks;
}

}  // namespace cistern
