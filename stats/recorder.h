#pragma once

// Recorder: the one door into statistics. The allocator reports each transition once, and
// never reads the counters back. Rules: docs/statistics.md, PyTorch's memory_stats.
//
// Not thread-safe: the heap that reports holds its lock around every call.

#include <cistern/stats.h>

#include <cstdint>

namespace cistern {

enum class PoolKind : std::uint8_t { small, large };

// The net change of inactive split blocks that comes with a transition. One net change a
// transition: `allocated`, `freed` and `peak` see no intermediate values.
struct InactiveSplitChange {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
};

class Recorder {
 public:
  // Sizes in bytes. `oversize`: of at least max_split_size.
  void segment_allocated(PoolKind pool, std::int64_t bytes, bool oversize);
  void segment_freed(PoolKind pool, std::int64_t bytes, bool oversize);
  // A block was handed to the caller.
  void block_allocated(PoolKind pool, std::int64_t bytes, std::int64_t requested, InactiveSplitChange split,
                       bool oversize);
  // The caller gave a block back; other streams may still use it.
  void free_requested(PoolKind pool, std::int64_t bytes, bool oversize);
  // The block is free: `bytes` is its size before it was merged with its neighbours.
  void free_completed(PoolKind pool, std::int64_t bytes, std::int64_t requested, InactiveSplitChange split);
  void allocation_retried() { ++stats_.num_alloc_retries; }
  void out_of_memory() { ++stats_.num_ooms; }
  void all_streams_synchronized() { ++stats_.num_sync_all_streams; }

  // The limit is reported as configured when the heap was made: see MemoryStats.
  void set_max_split_size(std::int64_t bytes) { stats_.max_split_size = bytes; }
  void reset_peaks();
  void reset_accumulated();
  [[nodiscard]] const MemoryStats& stats() const { return stats_; }

 private:
  MemoryStats stats_;
};

}  // namespace cistern
