#pragma once

// BlockLedger: what blocks came and went since its recorder last wrote it down.
//
// Several statistics move with each block, of its pool and of all memory, each with a peak and with
// what was ever added. Here a peak costs nothing until it moves: the recorder grants what may still come
// below the peaks, and is told when that is exceeded, at that very block. Several ledgers share what is
// granted: as long as none exceeds its part, no order of what they saw comes above a peak.
// Not thread-safe: whoever reports holds the lock that the ledger belongs to. O(1).

#include <cistern/stats.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace cistern {

enum class PoolKind : std::uint8_t { small, large };

// The net change of inactive split blocks that comes with a transition. One net change a
// transition: `allocated`, `freed` and `peak` see no intermediate values.
struct InactiveSplitChange {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
};

class BlockLedger {
  static constexpr std::size_t kAll = 2;  // behind the pools, by PoolKind

 public:
  // Streams take turns: one that lost its part whenever it rested would ask for a grant whenever it goes on. One that
  // does nothing for long leaves the room to others.
  static constexpr std::uint32_t kStreamsRest = 64;
  // For how many grants it keeps its part although nothing is told it.
  explicit BlockLedger(std::uint32_t rests = kStreamsRest) : rests_(rests), at_rest_(rests + 2) {}

  // A block is in use. False: a peak may have moved, and the ledger is to be written down now.
  [[nodiscard]] bool came(PoolKind pool, std::int64_t bytes, std::int64_t requested, const InactiveSplitChange& split) {
    Amounts& added = added_[static_cast<std::size_t>(pool)];
    added.blocks += 1;
    added.bytes += bytes;
    added.requested += requested;
    return take(pool, 1, bytes, requested, split);
  }
  // It is free again.
  [[nodiscard]] bool went(PoolKind pool, std::int64_t bytes, std::int64_t requested, const InactiveSplitChange& split) {
    return take(pool, -1, -bytes, -requested, split);
  }

  // It went and came so many times while nothing else did: no figure comes to where it had not been. `split`:
  // the change when it comes.
  void turned(PoolKind pool, std::int64_t times, std::int64_t bytes, std::int64_t requested,
              const InactiveSplitChange& split) {
    Amounts& added = added_[static_cast<std::size_t>(pool)];
    added.blocks += times;
    added.bytes += times * bytes;
    added.requested += times * requested;
    added.splits += times * std::abs(split.count);
    added.split_bytes += times * std::abs(split.bytes);
  }
  // A block came, or went (of 0 bytes then), so many times in rounds that led back to where they began, and below the
  // peaks; `grown`: what inactive splits grew by with it.
  void recurred(PoolKind pool, std::int64_t times, std::int64_t bytes, std::int64_t requested,
                const InactiveSplitChange& grown) {
    Amounts& added = added_[static_cast<std::size_t>(pool)];
    added.blocks += bytes == 0 ? 0 : times;
    added.bytes += times * bytes;
    added.requested += times * requested;
    added.splits += times * grown.count;
    added.split_bytes += times * grown.bytes;
  }
  // Inactive splits came or went alone.
  [[nodiscard]] bool split(PoolKind pool, const InactiveSplitChange& change) { return take(pool, 0, 0, 0, change); }

  // Undo came and went, which said false, as if they had not been called; with the next grant the ledger needs room for
  // them. Kept out of what calls them, so that what was before is not saved for them each time.
  [[gnu::noinline, gnu::cold]] void take_back(PoolKind pool, std::int64_t bytes, std::int64_t requested,
                                              const InactiveSplitChange& split) {
    begin_to_need();
    Amounts& added = added_[static_cast<std::size_t>(pool)];
    added.blocks -= 1;
    added.bytes -= bytes;
    added.requested -= requested;
    undo(pool, 1, bytes, requested, split);
    need();
  }
  [[gnu::noinline, gnu::cold]] void take_back_free(PoolKind pool, std::int64_t bytes, std::int64_t requested,
                                                   const InactiveSplitChange& split) {
    begin_to_need();
    undo(pool, -1, -bytes, -requested, split);
    need();
  }

  // Adds what came and went to `stats`. Its peaks stay: with all ledgers added, raise_peaks.
  void add_to(MemoryStats& stats) const;
  // The same for the last time before it begins anew.
  void close(MemoryStats& stats);
  // Whether any moved.
  static bool raise_peaks(MemoryStats& stats);
  class Room;
  // Whether it gets a part.
  [[nodiscard]] bool takes_part() const { return at_rest_ <= rests_; }
  // Begins anew, with its part if it takes part.
  void begin(const Room& room, bool asks);
  // Of who asked then: what did not fit before would fit now.
  [[nodiscard]] bool got_what_it_needed() const { return got_what_it_needed_; }
  // Whether anything was told since it began.
  [[nodiscard]] bool has_moved() const;
  // The blocks that came since then.
  [[nodiscard]] std::int64_t blocks_came() const { return added_[0].blocks + added_[1].blocks; }
  // The bytes of the blocks that came, less those that went.
  [[nodiscard]] std::int64_t bytes() const { return granted_[kAll].bytes - room_[kAll].bytes; }

 private:
  struct Amounts {
    std::int64_t blocks = 0;
    std::int64_t bytes = 0;
    std::int64_t requested = 0;
    std::int64_t splits = 0;  // inactive
    std::int64_t split_bytes = 0;

    // Calls visit(amount...) for each, with that of all of `of`.
    template <class Visit, class... Of>
    [[gnu::always_inline]] static void for_each(Visit&& visit, Of&... of) {
      visit(of.blocks...);
      visit(of.bytes...);
      visit(of.requested...);
      visit(of.splits...);
      visit(of.split_bytes...);
    }
  };
  // Of each pool, by PoolKind, and of all.
  using Figures = std::array<Amounts, 3>;
  template <class Visit, class... Of>
  [[gnu::always_inline]] static void for_each_amount(Visit&& visit, Of&... of) {
    for (std::size_t i = 0; i <= kAll; ++i) Amounts::for_each(visit, of[i]...);
  }
  // The statistics of an amount. Blocks that wait for other streams are active and not allocated any more:
  // that the recorder keeps, and the room is the lesser of both.
  struct Meaning {
    std::int64_t Amounts::*amount;
    PoolStat MemoryStats::*first;
    PoolStat MemoryStats::*second;  // null: there is no other
  };
  static const std::array<Meaning, 5> kMeanings;
  // An eighth of what it lacks, when there is less than all lack.
  static constexpr std::int64_t kGivesWay = 8;
  void give_way(const Room& room);

  // What is below 0 has the sign of all that is or-ed.
  [[nodiscard]] bool take(PoolKind pool, std::int64_t blocks, std::int64_t bytes, std::int64_t requested,
                          const InactiveSplitChange& split) {
    if (split.bytes != 0) {
      Amounts& added = added_[static_cast<std::size_t>(pool)];
      added.splits += std::max<std::int64_t>(split.count, 0);
      added.split_bytes += std::max<std::int64_t>(split.bytes, 0);
    }
    return take_room(pool, blocks, bytes, requested, split);
  }
  [[nodiscard]] bool take_room(PoolKind pool, std::int64_t blocks, std::int64_t bytes, std::int64_t requested,
                               const InactiveSplitChange& split) {
    Amounts& part = room_[static_cast<std::size_t>(pool)];
    Amounts& all = room_[kAll];
    std::int64_t signs = (part.blocks -= blocks) | (all.blocks -= blocks);
    signs |= (part.bytes -= bytes) | (all.bytes -= bytes);
    signs |= (part.requested -= requested) | (all.requested -= requested);
    if (split.bytes != 0) {
      signs |= (part.splits -= split.count) | (all.splits -= split.count);
      signs |= (part.split_bytes -= split.bytes) | (all.split_bytes -= split.bytes);
    }
    return signs >= 0;
  }

  // All that did not fit: between the two it is undone.
  void begin_to_need() {
    at_rest_ = 0;
    needs_ = room_;
  }
  void need() {
    for_each_amount([](std::int64_t& needs, std::int64_t room) { needs = std::max<std::int64_t>(room - needs, 0); },
                    needs_, room_);
  }
  // Undoes take.
  void undo(PoolKind pool, std::int64_t blocks, std::int64_t bytes, std::int64_t requested,
            const InactiveSplitChange& split) {
    Amounts& added = added_[static_cast<std::size_t>(pool)];
    added.splits -= std::max<std::int64_t>(split.count, 0);
    added.split_bytes -= std::max<std::int64_t>(split.bytes, 0);
    static_cast<void>(take_room(pool, -blocks, -bytes, -requested, {-split.count, -split.bytes}));
  }

  Figures room_{};                  // what may still come below every peak
  Figures granted_{};               // of that, what there was in the beginning
  std::array<Amounts, 2> added_{};  // to the accumulated figures, by pool
  Figures needs_{};                 // of the next grant, for what came last
  bool got_what_it_needed_ = true;
  // Of the most that it ever had when it was written down, what it lacked the last time; and what it had then, from
  // where it began to count.
  Figures lacked_{};
  Figures level_{};
  std::uint32_t rests_;
  std::uint32_t at_rest_;  // grants since it moved, up to the second without a part: it has nothing since the first
};

// What may come below the peaks, and how it is shared out among the ledgers that take part. Each is to have what it
// lacks of the most that it had so far, as far as was seen: then threads that each repeat their own work need no grant
// any more, once all came up to that at one time. Where there is less, who asks gets at least half, up to what it
// lacks, and what it needs at once if there is as much, and of what the others lack each gets an equal fraction, and
// what they had is taken for a little less. What is left over is for all alike, and the rest of that for who asks.
// O(1), and so for each ledger.
class BlockLedger::Room {
 public:
  // One that takes part. One at most asks.
  void add(const BlockLedger& ledger, bool asks);
  // What there is below the peaks of `stats`, which has all that came and went. Requires: all were added.
  void share_out(const MemoryStats& stats);

 private:
  friend class BlockLedger;
  void set_room(const MemoryStats& stats);

  Figures room_{};
  Figures wanted_{};  // by those that do not ask
  Figures of_who_asks_{};
  Figures needs_{};   // of who asks
  Figures beside_{};  // for each, beside what it wants
  Figures shifts_{};  // it gets what it wants, halved so often
  std::int64_t parts_ = 0;
  bool is_asked_ = false;
  bool is_scarce_ = false;  // some is halved
};

}  // namespace cistern
