#include "stats/block_ledger.h"

#include <algorithm>
#include <cassert>

namespace cistern {

const std::array<BlockLedger::Meaning, 5> BlockLedger::kMeanings = {{
    {&Amounts::blocks, &MemoryStats::allocation, &MemoryStats::active},
    {&Amounts::bytes, &MemoryStats::allocated_bytes, &MemoryStats::active_bytes},
    {&Amounts::requested, &MemoryStats::requested_bytes, nullptr},
    {&Amounts::splits, &MemoryStats::inactive_split, nullptr},
    {&Amounts::split_bytes, &MemoryStats::inactive_split_bytes, nullptr},
}};

namespace {

constexpr std::array<Stat PoolStat::*, 3> kParts = {&PoolStat::small_pool, &PoolStat::large_pool, &PoolStat::all};

std::int64_t room_below(const Stat& stat) { return stat.peak - stat.current; }

}  // namespace

bool BlockLedger::has_moved() const {
  const Amounts& room = room_[kAll];
  const Amounts& granted = granted_[kAll];
  const auto has_added = [](const Amounts& added) {
    return added.blocks != 0 || added.splits != 0 || added.split_bytes != 0;
  };
  return has_added(added_[0]) || has_added(added_[1]) || room.blocks != granted.blocks ||
         room.splits != granted.splits || room.split_bytes != granted.split_bytes;
}

void BlockLedger::add_to(MemoryStats& stats) const {
  for (const Meaning& meaning : kMeanings) {
    for (PoolStat MemoryStats::*const member : {meaning.first, meaning.second}) {
      if (member == nullptr) continue;
      for (std::size_t i = 0; i < kParts.size(); ++i) {
        Stat& stat = stats.*member.*kParts[i];
        stat.current += granted_[i].*meaning.amount - room_[i].*meaning.amount;
        if (i != kAll) stat.allocated += added_[i].*meaning.amount;
      }
    }
  }
}

void BlockLedger::close(MemoryStats& stats) {
  if (!has_moved()) {
    at_rest_ = std::min(at_rest_, rests_) + 1;
    return;
  }
  at_rest_ = 0;
  add_to(stats);
}

bool BlockLedger::raise_peaks(MemoryStats& stats) {
  bool moved = false;
  for (const Meaning& meaning : kMeanings) {
    for (PoolStat MemoryStats::*const member : {meaning.first, meaning.second}) {
      if (member == nullptr) continue;
      for (Stat PoolStat::*const part : kParts) {
        Stat& stat = stats.*member.*part;
        moved |= stat.current > stat.peak;
        stat.peak = std::max(stat.peak, stat.current);
        assert(stat.current >= 0 && "more was taken from a statistic than was added to it");
      }
    }
  }
  return moved;
}

BlockLedger::Room BlockLedger::room_of(const MemoryStats& stats, std::int64_t parts) {
  Room all;
  if (parts == 0) return all;
  for (const Meaning& meaning : kMeanings) {
    for (std::size_t i = 0; i < kParts.size(); ++i) {
      std::int64_t room = room_below(stats.*meaning.first.*kParts[i]);
      if (meaning.second != nullptr) room = std::min(room, room_below(stats.*meaning.second.*kParts[i]));
      const std::int64_t part = parts == 1 ? room : room / parts;
      all.part_[i].*meaning.amount = part;
      all.part_of_who_asks_[i].*meaning.amount = room - part * (parts - 1);
    }
  }
  return all;
}

void BlockLedger::begin(const Room& room, bool asks) {
  if (takes_part())
    room_ = asks ? room.part_of_who_asks_ : room.part_;
  else
    room_ = {};
  granted_ = room_;
  added_ = {};
}

}  // namespace cistern
