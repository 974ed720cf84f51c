#pragma once

// The specification of scopes and tags: everything is kept for each, and copied at each peak.

#include <cistern/stats.h>

#include <cstdint>
#include <map>
#include <vector>

namespace cistern::model {

// One change of one statistic, with pools or without; of a tag's blocks if it is one of
// `allocation` or `allocated_bytes`.
struct Change {
  PoolStat MemoryStats::*pools = nullptr;
  Stat MemoryStats::*stat = nullptr;
  bool small = false;
  std::int64_t by = 0;
  int tag = 0;
};

void move(Stat& stat, std::int64_t by);

class ReferenceLedger {
 public:
  void open_scope(int scope, const MemoryStats& now);
  void close_scope(int scope) { scopes_.erase(scope); }
  // What happened in one step, the counters from `before` to `after`.
  void follow(const std::vector<Change>& changes, const MemoryStats& before, const MemoryStats& after);
  void reset_peaks();
  void reset_accumulated();

  [[nodiscard]] const std::map<int, MemoryStats>& scopes() const { return scopes_; }
  struct TagFigures {
    Stat allocation, allocated_bytes;
    std::int64_t at_peak = 0;
  };
  [[nodiscard]] const std::map<int, TagFigures>& tags() const { return tags_; }

 private:
  void note_peak();

  std::map<int, MemoryStats> scopes_;
  std::map<int, TagFigures> tags_{{0, {}}};
  std::int64_t peak_ = 0;
};

}  // namespace cistern::model
