#include "reference_ledger.h"

#include "reference_allocator.h"
#include "stats/fields.h"

namespace cistern::model {

void move(Stat& stat, std::int64_t by) {
  stat.current += by;
  if (by > 0) stat.allocated += by;
  if (by < 0) stat.freed -= by;
  if (stat.current > stat.peak) stat.peak = stat.current;
}

// Frees with events, and those that were put off.
std::vector<AwaitedFree> ReferenceAllocator::awaited() const {
  std::map<std::uint64_t, ModelBlock> pending;
  for (const ModelSegment& segment : segments_)
    for (const ModelBlock& block : segment.blocks)
      if (block.pending) pending[block.address] = block;
  std::vector<AwaitedFree> awaited;
  for (const auto& [stream, events] : pending_)
    for (const PendingEvent& event : events)
      awaited.push_back({stream, pending.at(event.block).bytes, pending.at(event.block).freed});
  for (const std::uint64_t address : put_off_)
    for (const int user : pending.at(address).users)
      awaited.push_back({user, pending.at(address).bytes, pending.at(address).freed});
  return awaited;
}

void ReferenceLedger::open_scope(int scope, const MemoryStats& now) {
  MemoryStats& stats = scopes_[scope];
  stats = now;
  visit_stats(stats, [](Stat& stat) { stat = {stat.current, stat.current, 0, 0}; });
  for (const CounterField& counter : kCounterFields)
    if (counter.accumulates) stats.*counter.member = 0;
}

void ReferenceLedger::follow(const std::vector<Change>& changes, const MemoryStats& before, const MemoryStats& after) {
  for (const Change& change : changes) {
    for (auto& [scope, stats] : scopes_) {
      if (change.pools != nullptr) {
        move((stats.*change.pools).all, change.by);
        move(change.small ? (stats.*change.pools).small_pool : (stats.*change.pools).large_pool, change.by);
      } else {
        move(stats.*change.stat, change.by);
      }
    }
    if (change.pools == &MemoryStats::allocation) move(tags_[change.tag].allocation, change.by);
    if (change.pools != &MemoryStats::allocated_bytes) continue;
    move(tags_[change.tag].allocated_bytes, change.by);
    note_peak();
  }
  for (auto& [scope, stats] : scopes_)
    for (const CounterField& counter : kCounterFields)
      if (counter.accumulates) stats.*counter.member += after.*counter.member - before.*counter.member;
}

void ReferenceLedger::note_peak() {
  std::int64_t total = 0;
  for (const auto& [tag, figures] : tags_) total += figures.allocated_bytes.current;
  if (total <= peak_) return;
  peak_ = total;
  for (auto& [tag, figures] : tags_) figures.at_peak = figures.allocated_bytes.current;
}

void ReferenceLedger::reset_peaks() {
  peak_ = -1;
  note_peak();
  for (auto& [tag, figures] : tags_)
    for (Stat* stat : {&figures.allocation, &figures.allocated_bytes}) stat->peak = stat->current;
}

void ReferenceLedger::reset_accumulated() {
  for (auto& [tag, figures] : tags_)
    for (Stat* stat : {&figures.allocation, &figures.allocated_bytes}) stat->allocated = stat->freed = 0;
}

}  // namespace cistern::model
