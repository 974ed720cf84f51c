#include "stats/block_ledger.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace cistern {

constexpr std::array<BlockLedger::Meaning, 5> BlockLedger::kMeanings = {{
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

// Without a jump for each: asked of all ledgers at each grant.
bool BlockLedger::has_moved() const {
  const Amounts& room = room_[kAll];
  const Amounts& granted = granted_[kAll];
  const auto added = [](const Amounts& of) { return of.blocks | of.splits | of.split_bytes; };
  return (added(added_[0]) | added(added_[1]) | (room.blocks ^ granted.blocks) | (room.splits ^ granted.splits) |
          (room.split_bytes ^ granted.split_bytes)) != 0;
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
    at_rest_ = std::min(at_rest_, rests_ + 1) + 1;
    return;
  }
  at_rest_ = 0;
  add_to(stats);
  for_each_amount(
      [](std::int64_t& lacked, std::int64_t& level, std::int64_t granted, std::int64_t room) {
        const std::int64_t highest = level + lacked;
        level += granted - room;
        lacked = std::max<std::int64_t>(highest - level, 0);
        // More went than came: blocks that another ledger saw come. What it has begins there.
        if (level < 0) lacked = std::max<std::int64_t>(highest + std::exchange(level, 0), 0);
      },
      lacked_, level_, granted_, room_);
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

void BlockLedger::Room::add(const BlockLedger& ledger, bool asks) {
  ++parts_;
  is_asked_ |= asks;
  for_each_amount([](std::int64_t& sum, std::int64_t lacked) { sum += lacked; }, asks ? of_who_asks_ : wanted_,
                  ledger.lacked_);
  if (asks) needs_ = ledger.needs_;
}

void BlockLedger::Room::set_room(const MemoryStats& stats) {
  for (const Meaning& meaning : kMeanings)
    for (std::size_t i = 0; i < kParts.size(); ++i) {
      std::int64_t& room = room_[i].*meaning.amount;
      room = room_below(stats.*meaning.first.*kParts[i]);
      if (meaning.second != nullptr) room = std::min(room, room_below(stats.*meaning.second.*kParts[i]));
    }
}

void BlockLedger::Room::share_out(const MemoryStats& stats) {
  if (parts_ == 0) return;
  set_room(stats);
  if (parts_ == 1 && is_asked_) {  // all of it is for who asks
    of_who_asks_ = room_;
    return;
  }
  for_each_amount(
      [this](std::int64_t room, std::int64_t wanted, std::int64_t needs, std::int64_t& of_who_asks,
             std::int64_t& beside, std::int64_t& shift) {
        of_who_asks = std::min(of_who_asks, std::max(room / 2, room - wanted));
        of_who_asks = std::max(of_who_asks, std::min(needs, room));
        const std::int64_t left = room - of_who_asks;
        std::int64_t over = left - wanted;
        if (over < 0) {
          shift = std::bit_width(static_cast<std::uint64_t>(wanted / std::max<std::int64_t>(left, 1)));
          is_scarce_ = true;
          over = left - (wanted >> shift);
        }
        beside = over / parts_;
        of_who_asks += over - beside * (parts_ - 1);
      },
      room_, wanted_, needs_, of_who_asks_, beside_, shifts_);
}

void BlockLedger::begin(const Room& room, bool asks) {
  if (at_rest_ > rests_ + 1) return;  // it has nothing
  added_ = {};
  if (!takes_part()) {
    room_ = {};
  } else if (asks) {
    room_ = room.of_who_asks_;
  } else {
    for_each_amount([](std::int64_t& part, std::int64_t lacked, std::int64_t shift,
                       std::int64_t beside) { part = (lacked >> shift) + beside; },
                    room_, lacked_, room.shifts_, room.beside_);
    if (room.is_scarce_ && room.is_asked_) give_way(room);
  }
  granted_ = room_;
  if (!asks) return;
  std::int64_t lacks = 0;
  for_each_amount([&lacks](std::int64_t needs, std::int64_t part) { lacks |= part - needs; }, needs_, room_);
  got_what_it_needed_ = lacks >= 0;
  needs_ = {};
}

// What it had once, and may need no more.
void BlockLedger::give_way(const Room& room) {
  for_each_amount(
      [](std::int64_t& lacked, std::int64_t shift) {
        if (shift != 0) lacked -= (lacked + kGivesWay - 1) / kGivesWay;
      },
      lacked_, room.shifts_);
}

}  // namespace cistern
