#include "stats/tag_ledger.h"

namespace cistern {

void TagLedger::keep(TagId tag, const TagFigures& untagged) {
  if (knows(tag)) return;
  const bool is_first = !is_kept();
  entries_.resize(tag + std::size_t{1});
  if (!is_first) return;
  Entry& entry = entries_[kUntagged];
  entry.allocation = untagged.allocation;
  entry.allocated_bytes = untagged.allocated_bytes;
  entry.saved_for = peak_;
  entry.saved_bytes = peak_bytes_ = untagged.at_peak_bytes;
}

TagFigures TagLedger::figures(std::size_t tag) const {
  const Entry& entry = entries_[tag];
  return {entry.allocation, entry.allocated_bytes,
          entry.saved_for == peak_ ? entry.saved_bytes : entry.allocated_bytes.current};
}

void TagLedger::reset_peaks(std::int64_t heap_bytes) {
  peak_bytes_ = heap_bytes;
  ++peak_;
  for (Entry& entry : entries_) {
    entry.allocation.peak = entry.allocation.current;
    entry.allocated_bytes.peak = entry.allocated_bytes.current;
  }
}

void TagLedger::reset_accumulated() {
  for (Entry& entry : entries_) {
    entry.allocation.allocated = entry.allocation.freed = 0;
    entry.allocated_bytes.allocated = entry.allocated_bytes.freed = 0;
  }
}

}  // namespace cistern
