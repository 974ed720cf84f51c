#pragma once

// Memory statistics, as PyTorch users know them.
//
// Counters and their rules are those of torch.cuda.memory_stats: see docs/statistics.md
// for what moves each one. All are signed 64-bit integers, in bytes or counts.
// Thread safety: the functions may be called from any thread; each result is a copy
// taken at one moment, under the device's lock.

#include <cistern/device.h>
#include <cistern/export.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>

namespace cistern {

// One statistic: its value now, its highest value since the last reset of the peaks,
// and all that was ever added to and taken from it since the last accumulated reset.
struct Stat {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;
  std::int64_t freed = 0;
  friend bool operator==(const Stat& a, const Stat& b) noexcept {
    return a.current == b.current && a.peak == b.peak && a.allocated == b.allocated && a.freed == b.freed;
  }
  friend bool operator!=(const Stat& a, const Stat& b) noexcept { return !(a == b); }
};

// The same statistic over all memory and over each pool. `all.peak` is the peak of the
// sum, not the sum of the peaks.
struct PoolStat {
  Stat all;
  Stat small_pool;
  Stat large_pool;
  friend bool operator==(const PoolStat& a, const PoolStat& b) noexcept {
    return a.all == b.all && a.small_pool == b.small_pool && a.large_pool == b.large_pool;
  }
  friend bool operator!=(const PoolStat& a, const PoolStat& b) noexcept { return !(a == b); }
};

struct NestedStats;
using NestedStatsValue = std::variant<std::int64_t, NestedStats>;
// A map of names to numbers or to further maps, as memory_stats_as_nested_dict.
struct NestedStats {
  std::map<std::string, NestedStatsValue> entries;
};

struct CISTERN_EXPORT MemoryStats {
  PoolStat allocation;       // blocks in the caller's hands
  PoolStat segment;          // pieces of memory held from the driver
  PoolStat active;           // blocks in use, or freed and still awaited by a stream
  PoolStat inactive_split;   // free blocks that are part of a partly used segment
  PoolStat allocated_bytes;  // the same five, in bytes of block or segment size
  PoolStat reserved_bytes;
  PoolStat active_bytes;
  PoolStat inactive_split_bytes;
  PoolStat requested_bytes;   // what callers asked for, of the active blocks
  Stat oversize_allocations;  // blocks and segments of at least max_split_size
  Stat oversize_segments;
  std::int64_t num_alloc_retries = 0;     // driver allocations tried again after a full flush
  std::int64_t num_ooms = 0;              // out-of-memory errors thrown
  std::int64_t num_sync_all_streams = 0;  // full waits for all pending frees
  std::int64_t num_device_alloc = 0;      // successful driver allocations
  std::int64_t num_device_free = 0;       // memory given back to the driver
  std::int64_t max_split_size = -1;       // bytes; -1: unlimited

  // The 122 keys of torch.cuda.memory_stats, in plain string order.
  [[nodiscard]] std::map<std::string, std::int64_t> flat() const;
  // The shape of torch.cuda.memory_stats_as_nested_dict.
  [[nodiscard]] NestedStats nested() const;
  friend CISTERN_EXPORT bool operator==(const MemoryStats& a, const MemoryStats& b) noexcept;
  friend bool operator!=(const MemoryStats& a, const MemoryStats& b) noexcept { return !(a == b); }
};

// The process-wide heap's statistics of one device. Before the device layer is
// initialised everything is 0; afterwards it throws InvalidArgument, naming the index, for no
// such device.
[[nodiscard]] CISTERN_EXPORT MemoryStats memory_stats(Device device = {});
// As PyTorch's flat and nested maps, which are empty before the device layer is initialised.
[[nodiscard]] CISTERN_EXPORT std::map<std::string, std::int64_t> memory_stats_flat(Device device = {});
[[nodiscard]] CISTERN_EXPORT NestedStats memory_stats_nested(Device device = {});

[[nodiscard]] CISTERN_EXPORT std::size_t memory_allocated(Device device = {});
[[nodiscard]] CISTERN_EXPORT std::size_t max_memory_allocated(Device device = {});
[[nodiscard]] CISTERN_EXPORT std::size_t memory_reserved(Device device = {});
[[nodiscard]] CISTERN_EXPORT std::size_t max_memory_reserved(Device device = {});

// All peaks become the current values. Nothing is released.
CISTERN_EXPORT void reset_peak_memory_stats(Device device = {});
// `allocated` and `freed` of all statistics, and the event counters, become 0.
CISTERN_EXPORT void reset_accumulated_memory_stats(Device device = {});

// The table of torch.cuda.memory_summary: 47 lines of 78 bytes, or 29 when abbreviated.
[[nodiscard]] CISTERN_EXPORT std::string memory_summary(Device device = {}, bool abbreviated = false);
// One picture of the device that adds up: live, rounding, pending, free in partly used and in
// unused segments, outside of cistern, free; with a line that explains each.
[[nodiscard]] CISTERN_EXPORT std::string memory_report(Device device = {});

}  // namespace cistern
