#include "stats/block_ledger.h"

#include <algorithm>
#include <cassert>

namespace cistern {
namespace {

// The statistics of a lane. Blocks that wait for other streams are active and not allocated any more:
// the recorder keeps the difference.
struct LaneStats {
  PoolStat MemoryStats::*first;
  PoolStat MemoryStats::*second;  // null: there is no other
};
constexpr std::array<LaneStats, 5> kLaneStats = {{
    {&MemoryStats::allocation, &MemoryStats::active},
    {&MemoryStats::allocated_bytes, &MemoryStats::active_bytes},
    {&MemoryStats::requested_bytes, nullptr},
    {&MemoryStats::inactive_split, nullptr},
    {&MemoryStats::inactive_split_bytes, nullptr},
}};

void move(Stat& stat, std::int64_t change) {
  stat.current += change;
  stat.peak = std::max(stat.peak, stat.current);
}

std::int64_t room_below(const Stat& stat) { return stat.peak - stat.current; }

}  // namespace

void BlockLedger::add_to(MemoryStats& stats) const {
  for (std::size_t lane = 0; lane < kLaneStats.size(); ++lane) {
    for (PoolStat MemoryStats::*const member : {kLaneStats[lane].first, kLaneStats[lane].second}) {
      if (member == nullptr) continue;
      PoolStat& stat = stats.*member;
      const std::array<Stat*, 3> of{&stat.small_pool, &stat.large_pool, &stat.all};
      for (std::size_t i = 0; i < of.size(); ++i) {
        move(*of[i], granted_[i][lane / 2][lane % 2] - room_[i][lane / 2][lane % 2]);
        if (i != kAll) of[i]->allocated += added_[i][lane / 2][lane % 2];
        assert(of[i]->current >= 0 && "more was taken from a statistic than was added to it");
      }
    }
  }
}

void BlockLedger::begin(const MemoryStats& stats) {
  for (std::size_t lane = 0; lane < kLaneStats.size(); ++lane) {
    const PoolStat& first = stats.*kLaneStats[lane].first;
    const PoolStat& second = kLaneStats[lane].second != nullptr ? stats.*kLaneStats[lane].second : first;
    const auto room = [&](Stat PoolStat::*pool) { return std::min(room_below(first.*pool), room_below(second.*pool)); };
    room_[0][lane / 2][lane % 2] = room(&PoolStat::small_pool);
    room_[1][lane / 2][lane % 2] = room(&PoolStat::large_pool);
    room_[kAll][lane / 2][lane % 2] = room(&PoolStat::all);
  }
  granted_ = room_;
  added_ = {};
}

}  // namespace cistern
