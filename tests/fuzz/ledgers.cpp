// The statistics of several streams, counted apart, beside one counter that sees each transition: every value, peak and
// sum, whenever somebody looks.

#include "stats/recorder.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

namespace cistern {
namespace {

// One change a transition, of a pool and of all memory.
struct Plain {
  std::array<Stat, 3> parts;  // small, large, all
  void move(PoolKind pool, std::int64_t amount) {
    for (Stat* stat : {&parts[static_cast<std::size_t>(pool)], &parts[2]}) {
      stat->current += amount;
      stat->peak = std::max(stat->peak, stat->current);
      (amount > 0 ? stat->allocated : stat->freed) += std::abs(amount);
    }
  }
  void forget_peaks() {
    for (Stat& stat : parts) stat.peak = stat.current;
  }
  void require_equal(const PoolStat& stat, const char* what) const {
    require(stat.small_pool == parts[0] && stat.large_pool == parts[1] && stat.all == parts[2], what);
  }
};

class Program {
 public:
  explicit Program(Steps steps) : steps_(steps) { recorder_.reserve_streams(ledgers_.size()); }

  void run() {
    while (steps_.more()) {
      step();
      if (steps_.byte() % 4 == 0) compare();
    }
    compare();
  }

 private:
  struct Known {
    std::size_t stream = 0;
    PoolKind pool = PoolKind::small;
    std::int64_t bytes = 0;
    std::int64_t requested = 0;
    InactiveSplitChange split;  // that came with it
    std::uint64_t grant = 0;
  };

  void step() {
    const std::uint64_t kind = steps_.byte() % 16;
    if (kind < 6)
      allocate();
    else if (kind < 10 && !live_.empty())
      free(take(live_));
    else if (kind == 10 && !live_.empty())
      request_free(take(live_));
    else if (kind == 11 && !waiting_.empty())
      complete_free(take(waiting_));
    else if (kind == 12 && !live_.empty())
      turn(live_.back());
    else if (kind == 13)
      part_or_join(ledgers_[steps_.byte() % ledgers_.size()]);
    else if (kind == 14)
      reset_peaks();
  }

  Known take(std::vector<Known>& from) {
    const auto place = from.begin() + static_cast<std::ptrdiff_t>(steps_.byte() % from.size());
    const Known block = *place;
    from.erase(place);
    return block;
  }
  void move(const Known& block, std::int64_t sign, bool with_allocation, bool with_active) {
    if (with_allocation) {
      allocation_.move(block.pool, sign);
      allocated_bytes_.move(block.pool, sign * block.bytes);
    }
    if (!with_active) return;
    active_.move(block.pool, sign);
    active_bytes_.move(block.pool, sign * block.bytes);
    requested_.move(block.pool, sign * block.requested);
    splits_.move(block.pool, sign * block.split.count);
    split_bytes_.move(block.pool, sign * block.split.bytes);
  }
  Attribution owner(const Known& block) { return {kUntagged, &ledgers_[block.stream]}; }
  static InactiveSplitChange back(const Known& block) { return {-block.split.count, -block.split.bytes}; }

  // As a stream does that has its own lock alone, and leaves to the recorder what may move a peak.
  void allocate() {
    Known block;
    const std::uint64_t text = steps_.word();
    block.stream = text % ledgers_.size();
    block.pool = text % 2 == 0 ? PoolKind::small : PoolKind::large;
    block.bytes = static_cast<std::int64_t>(text / 8 % 64 + 1) * 512;
    block.requested = block.bytes - static_cast<std::int64_t>(text % 5);
    // A split that comes: those that go are of the block's own free.
    if (text % 3 == 0) block.split = {static_cast<std::int64_t>(text % 2), block.bytes / 2};
    BlockLedger& blocks = ledgers_[block.stream].blocks;
    const bool is_apart = ledgers_[block.stream].is_apart;
    if (!is_apart || !blocks.came(block.pool, block.bytes, block.requested, block.split)) {
      if (is_apart) blocks.take_back(block.pool, block.bytes, block.requested, block.split);
      recorder_.block_allocated(block.pool, block.bytes, block.requested, block.split, false, owner(block));
    }
    move(block, 1, true, true);
    live_.push_back(block);
  }
  void free(const Known& block) {
    BlockLedger& blocks = ledgers_[block.stream].blocks;
    const bool is_apart = ledgers_[block.stream].is_apart;
    if (!is_apart || !blocks.went(block.pool, block.bytes, block.requested, back(block))) {
      if (is_apart) blocks.take_back_free(block.pool, block.bytes, block.requested, back(block));
      recorder_.freed(block.pool, block.bytes, block.requested, back(block), false, owner(block));
    }
    move(block, -1, true, true);
  }
  void request_free(Known block) {
    recorder_.free_requested(block.pool, block.bytes, false, owner(block));
    move(block, -1, true, false);
    block.grant = recorder_.grants();
    waiting_.push_back(block);
  }
  void complete_free(const Known& block) {
    recorder_.free_completed(block.pool, block.bytes, block.requested, back(block), owner(block), block.grant);
    move(block, -1, false, true);
  }
  // The block goes and comes again, some times, while nothing else happens.
  void turn(const Known& block) {
    const std::uint64_t times = 1 + steps_.byte() % 4;
    recorder_.turned(block.pool, static_cast<std::int64_t>(times), block.bytes, block.requested, block.split, false,
                     owner(block));
    for (std::uint64_t i = 0; i < times; ++i) {
      move(block, -1, true, true);
      move(block, 1, true, true);
    }
  }
  void part_or_join(StreamLedger& ledger) {
    if (ledger.is_apart)
      recorder_.join(ledger);
    else
      recorder_.part(ledger);
  }
  void reset_peaks() {
    recorder_.reset_peaks();
    for (Plain* plain :
         {&allocation_, &allocated_bytes_, &active_, &active_bytes_, &requested_, &splits_, &split_bytes_})
      plain->forget_peaks();
  }

  void compare() const {
    const MemoryStats stats = recorder_.stats();
    allocation_.require_equal(stats.allocation, "allocations");
    allocated_bytes_.require_equal(stats.allocated_bytes, "allocated bytes");
    active_.require_equal(stats.active, "active blocks");
    active_bytes_.require_equal(stats.active_bytes, "active bytes");
    requested_.require_equal(stats.requested_bytes, "requested bytes");
    splits_.require_equal(stats.inactive_split, "inactive splits");
    split_bytes_.require_equal(stats.inactive_split_bytes, "their bytes");
    for (std::size_t stream = 0; stream < ledgers_.size(); ++stream) {
      std::int64_t bytes = 0;
      for (const Known& block : live_) bytes += block.stream == stream ? block.bytes : 0;
      require(ledgers_[stream].live_bytes() == bytes, "a stream's live bytes");
    }
  }

  Steps steps_;
  Recorder recorder_;
  std::array<StreamLedger, 3> ledgers_;
  std::vector<Known> live_;
  std::vector<Known> waiting_;
  Plain allocation_, allocated_bytes_, active_, active_bytes_, requested_, splits_, split_bytes_;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cistern::Program(cistern::Steps(data, size)).run();
  return 0;
}
