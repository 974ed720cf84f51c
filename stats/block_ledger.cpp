#include "stats/block_ledger.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

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
  for (const Meaning& meaning : kMeanings)
    for (std::size_t i = 0; i < kParts.size(); ++i) {
      std::int64_t& level = level_[i].*meaning.amount;
      level += granted_[i].*meaning.amount - room_[i].*meaning.amount;
      std::int64_t& highest = highest_[i].*meaning.amount;
      // More went than came: blocks that another ledger saw come. What it has begins there.
      if (level < 0) highest += std::exchange(level, 0);
      highest = std::max(highest, level);
    }
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

BlockLedger::Room::Room(const MemoryStats& stats) {
  for (std::size_t m = 0; m < kMeanings.size(); ++m)
    for (std::size_t i = 0; i < kParts.size(); ++i) {
      const Meaning& meaning = kMeanings[m];
      std::int64_t room = room_below(stats.*meaning.first.*kParts[i]);
      if (meaning.second != nullptr) room = std::min(room, room_below(stats.*meaning.second.*kParts[i]));
      shares_[i][m].room = room;
    }
}

void BlockLedger::Room::add(const BlockLedger& ledger, bool asks) {
  ++parts_;
  is_asked_ |= asks;
  for (std::size_t i = 0; i < kParts.size(); ++i)
    for (std::size_t m = 0; m < kMeanings.size(); ++m) {
      Share& share = shares_[i][m];
      (asks ? share.of_who_asks : share.wanted) += ledger.wanted(i, m);
    }
}

void BlockLedger::Room::share_out() {
  if (parts_ == 0) return;
  for (auto& shares : shares_)
    for (Share& share : shares) {
      share.of_who_asks = std::min(share.of_who_asks, std::max(share.room / 2, share.room - share.wanted));
      const std::int64_t left = share.room - share.of_who_asks;
      std::int64_t over = left - share.wanted;
      if (over < 0) {
        share.shift = static_cast<int>(
            std::bit_width(static_cast<std::uint64_t>(share.wanted / std::max<std::int64_t>(left, 1))));
        over = left - (share.wanted >> share.shift);
      }
      share.beside = over / parts_;
      share.of_who_asks += over - share.beside * (parts_ - 1);
    }
}

inline std::int64_t BlockLedger::wanted(std::size_t part, std::size_t meaning) const {
  const auto amount = kMeanings[meaning].amount;
  return highest_[part].*amount - level_[part].*amount;
}

void BlockLedger::begin(const Room& room, bool asks) {
  room_ = {};
  if (takes_part())
    for (std::size_t i = 0; i < kParts.size(); ++i)
      for (std::size_t m = 0; m < kMeanings.size(); ++m) {
        const Room::Share& share = room.shares_[i][m];
        const auto amount = kMeanings[m].amount;
        const std::int64_t lacks = wanted(i, m);
        room_[i].*amount = asks ? share.of_who_asks : (lacks >> share.shift) + share.beside;
        // What it had once, and may need no more, gives way.
        if (share.shift != 0 && room.is_asked_ && !asks) highest_[i].*amount -= (lacks + kGivesWay - 1) / kGivesWay;
      }
  granted_ = room_;
  added_ = {};
}

}  // namespace cistern
