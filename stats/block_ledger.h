#pragma once

// BlockLedger: what blocks came and went since its recorder last wrote it down.
//
// Several statistics move with each block: count, bytes, requested bytes, and the inactive splits, each
// of its pool and of all memory. Here they are lanes that are added at once, and a peak costs nothing
// until it moves: the recorder grants what may still come below the peaks, and is told when that
// is exceeded, at that very block.
// Not thread-safe: the heap that reports holds its lock around every call.

#include <cistern/stats.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace cistern {

enum class PoolKind : std::uint8_t { small, large };

// The net change of inactive split blocks that comes with a transition. One net change a
// transition: `allocated`, `freed` and `peak` see no intermediate values.
struct InactiveSplitChange {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
};

class BlockLedger {
 public:
  // A block is in use. False: a peak may have moved, and the ledger is to be written down now.
  [[nodiscard]] bool came(PoolKind pool, std::int64_t bytes, std::int64_t requested, InactiveSplitChange split) {
    const Lanes change{{{1, bytes}, {requested, split.count}, {split.bytes, 0}}};
    const Lanes increase{{{1, bytes}, {requested, positive(split.count)}, {positive(split.bytes), 0}}};
    return add(pool, change, increase);
  }
  // It is free again.
  [[nodiscard]] bool went(PoolKind pool, std::int64_t bytes, std::int64_t requested, InactiveSplitChange split) {
    const Lanes change{{{-1, -bytes}, {-requested, split.count}, {split.bytes, 0}}};
    const Lanes increase{{{0, 0}, {0, positive(split.count)}, {positive(split.bytes), 0}}};
    return add(pool, change, increase);
  }

  // Adds what came and went to `stats`, whose peaks rise to what is current at least.
  void add_to(MemoryStats& stats) const;
  // Begins anew below the peaks of `stats`, which has all that came and went.
  void begin(const MemoryStats& stats);
  // The bytes of the blocks that came, less those that went.
  [[nodiscard]] std::int64_t bytes() const { return granted_[kAll][0][1] - room_[kAll][0][1]; }

 private:
  // Count, bytes; requested bytes, inactive splits; their bytes, nothing.
  using Pair [[gnu::vector_size(16)]] = std::int64_t;
  using Lanes = std::array<Pair, 3>;
  static constexpr std::size_t kAll = 2;  // behind the pools, by PoolKind

  [[nodiscard]] static std::int64_t positive(std::int64_t value) { return value > 0 ? value : 0; }
  [[nodiscard]] bool add(PoolKind pool, const Lanes& change, const Lanes& increase) {
    Lanes& room = room_[static_cast<std::size_t>(pool)];
    Lanes& added = added_[static_cast<std::size_t>(pool)];
    Pair least{};
    for (std::size_t i = 0; i < change.size(); ++i) {
      room[i] -= change[i];
      room_[kAll][i] -= change[i];
      added[i] += increase[i];
      least |= room[i] | room_[kAll][i];
    }
    return (least[0] | least[1]) >= 0;
  }

  std::array<Lanes, 3> room_{};     // what may still come below every peak
  std::array<Lanes, 3> granted_{};  // of that, what there was in the beginning
  std::array<Lanes, 2> added_{};    // to the accumulated figures, by pool
};

}  // namespace cistern
