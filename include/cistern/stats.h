#pragma once

// Memory statistics, as PyTorch users know them.
//
// Counters and their rules are those of torch.cuda.memory_stats: see docs/statistics.md
// for what moves each one. All are signed 64-bit integers, in bytes or counts.
// Thread safety: the functions may be called from any thread; each result is a copy
// taken at one moment, under the device's lock.

#include <cistern/device.h>
#include <cistern/export.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

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

// What each private pool has reserved, by the pair of its PoolId.
using ReservedByPrivatePool = std::map<std::pair<std::uint64_t, std::uint64_t>, PoolStat>;

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
  // The same with `reserved_bytes_by_private_pools`, of which each pool is "first_second" of its id:
  // "reserved_bytes_by_private_pools.0_1.all.current". Without a pool there is no such key.
  [[nodiscard]] std::map<std::string, std::int64_t> flat(const ReservedByPrivatePool& pools) const;
  [[nodiscard]] NestedStats nested(const ReservedByPrivatePool& pools) const;
  friend CISTERN_EXPORT bool operator==(const MemoryStats& a, const MemoryStats& b) noexcept;
  friend bool operator!=(const MemoryStats& a, const MemoryStats& b) noexcept { return !(a == b); }
};

// The memory of one tag on a device: see scope.h. `current`, `peak`, `allocated` and `freed` move and
// are reset as the device's own; over all tags they add up to those, but for the peaks.
struct TagStats {
  std::string tag;       // empty: what was allocated outside of every TagScope
  Stat allocation;       // blocks in callers' hands
  Stat allocated_bytes;  // their sizes
  // What the tag had when the device's allocated bytes first reached their peak since the last reset
  // of the peaks: over all tags these add up to that peak.
  std::int64_t at_device_peak_bytes = 0;
};

// A stream's part in a device's memory. Its own blocks are those that were allocated for it; blocks
// of other streams wait for its work where record_stream told so. A stream is known by its id: a
// driver uses handles again.
struct StreamStats {
  int device = 0;           // the stream's own, which may be another than the memory's
  std::int64_t stream = 0;  // the raw handle as a number; 0: the default stream
  std::uint64_t stream_id = 0;
  std::int64_t reserved_bytes = 0;  // of its segments
  std::int64_t live_bytes = 0;      // of its blocks in callers' hands
  std::int64_t pending_bytes = 0;   // of its blocks that were freed, but that other streams may still use
  std::int64_t awaited_frees = 0;   // freed blocks of other streams that wait for work on this one
  std::int64_t awaited_bytes = 0;   // their sizes: a block that waits for two streams counts with both
  // When the free of the oldest of them was requested; none without them.
  std::optional<std::chrono::steady_clock::time_point> awaited_since;
  // Under policy `paged`: others held it up so often that it takes no free bytes of theirs, or sharing them saved
  // nothing, so that it has these last: see stream_hand_over.
  bool stands_alone = false;
};

// Free bytes that a stream had of another's under policy `paged`, since the last accumulated reset.
struct HandOverStats {
  std::int64_t to = 0;  // raw handles as numbers; 0: the default stream
  std::uint64_t to_id = 0;
  std::int64_t from = 0;
  std::uint64_t from_id = 0;
  std::int64_t hand_overs = 0;  // requests of `to` that took some
  std::int64_t bytes = 0;       // what they took
  // Of these requests: they found work of `from` that was not done, for which the device has `to` wait.
  std::int64_t held_up = 0;
};

// A free that waits for other streams, and who keeps it waiting.
struct PendingFree {
  std::uint64_t address = 0;
  std::int64_t bytes = 0;
  std::int64_t owner = 0;          // the raw handle of the block's own stream; 0: the default stream
  std::int64_t waits_for = 0;      // of the stream that it waits for
  std::uint64_t waits_for_id = 0;  // and its id
  int waits_for_device = 0;
  std::chrono::steady_clock::time_point since;  // when the free was requested
};

// How much of a device's free memory can serve a request. Bytes.
struct CISTERN_EXPORT FragmentationStats {
  std::size_t free_bytes = 0;                // cached outside of private pools: the sum of the two below
  std::size_t free_split_bytes = 0;          // in segments that are partly in use
  std::size_t free_whole_bytes = 0;          // in segments that are wholly free
  std::size_t free_private_bytes = 0;        // in private pools, which alone it serves; not in the above
  std::size_t free_blocks = 0;               // outside of private pools
  std::size_t largest_free_block_bytes = 0;  // of those
  std::size_t request_bytes = 0;             // the request that was asked about
  std::size_t usable_bytes = 0;              // of free_bytes, in blocks that would serve it on their own streams
  // usable_bytes over free_bytes; 0 where nothing is free.
  [[nodiscard]] double usable_share() const noexcept;
};

// Whose a device's memory is, by the driver's word. Bytes.
struct DeviceMemoryStats {
  std::size_t total = 0;
  std::size_t free = 0;      // what the driver could still hand out
  std::size_t reserved = 0;  // held by this allocator
  std::size_t outside = 0;   // the rest: other processes, contexts, libraries, memory opened by IPC
};

// The process-wide heap's statistics of one device. Before the device layer is
// initialised everything is 0; afterwards it throws InvalidArgument, naming the index, for no
// such device.
[[nodiscard]] CISTERN_EXPORT MemoryStats memory_stats(Device device = {});
// What the device's private pools have reserved, one entry for each pool that lives; the resets below
// are its resets. Empty under pytorch_rules:2.4, which knows no such figures.
[[nodiscard]] CISTERN_EXPORT ReservedByPrivatePool reserved_bytes_by_private_pools(Device device = {});
// As PyTorch's flat and nested maps, which are empty before the device layer is initialised; with
// what private pools have reserved.
[[nodiscard]] CISTERN_EXPORT std::map<std::string, std::int64_t> memory_stats_flat(Device device = {});
[[nodiscard]] CISTERN_EXPORT NestedStats memory_stats_nested(Device device = {});

[[nodiscard]] CISTERN_EXPORT std::size_t memory_allocated(Device device = {});
[[nodiscard]] CISTERN_EXPORT std::size_t max_memory_allocated(Device device = {});
[[nodiscard]] CISTERN_EXPORT std::size_t memory_reserved(Device device = {});
[[nodiscard]] CISTERN_EXPORT std::size_t max_memory_reserved(Device device = {});

// All peaks become the current values. Nothing is released.
CISTERN_EXPORT void reset_peak_memory_stats(Device device = {});
// `allocated` and `freed` of all statistics, the event counters and what was handed over become 0.
CISTERN_EXPORT void reset_accumulated_memory_stats(Device device = {});

// The tags that have any figure but 0 on the device, by name, and first the one without a name, which
// is always there. Takes a copy under the device's lock, O(tags).
[[nodiscard]] CISTERN_EXPORT std::vector<TagStats> tag_stats(Device device = {});
// The streams that hold memory of the device or keep freed memory waiting, by device and id, the
// default stream last. Under the device's lock, O(segments + pending frees). Does not look whether
// awaited work is done: an allocation does.
[[nodiscard]] CISTERN_EXPORT std::vector<StreamStats> stream_stats(Device device = {});
// Who had whose bytes, by the ids of `to` and `from`: of streams that have memory of policy `paged` now. Under the
// device's lock, O(pairs).
[[nodiscard]] CISTERN_EXPORT std::vector<HandOverStats> hand_over_stats(Device device = {});
// The free that has waited for the longest time, and the stream that keeps it waiting: one of them
// if there are several. None if no free waits. As stream_stats; a free that another thread is in
// the middle of is not seen.
[[nodiscard]] CISTERN_EXPORT std::optional<PendingFree> oldest_pending_free(Device device = {});
// How the device's free memory is cut up, and how much of it would serve a request of
// `request_bytes`. Under the device's lock, O(blocks).
[[nodiscard]] CISTERN_EXPORT FragmentationStats fragmentation_stats(std::size_t request_bytes = 0, Device device = {});
// Asks the driver (cuMemGetInfo) and the heap, one after the other: while other threads allocate,
// `outside` takes up the difference. Throws DriverError.
[[nodiscard]] CISTERN_EXPORT DeviceMemoryStats device_memory_stats(Device device = {});

// The table of torch.cuda.memory_summary: 47 lines of 78 bytes, or 29 when abbreviated.
[[nodiscard]] CISTERN_EXPORT std::string memory_summary(Device device = {}, bool abbreviated = false);
// One picture of the device that adds up: live, rounding, pending by stream, free in partly used and
// in unused segments and in private pools, outside of cistern, free; the largest owners by tag and by stack;
// and what would help, where something would. ASCII, at most 110 columns. O(blocks).
[[nodiscard]] CISTERN_EXPORT std::string memory_report(Device device = {});

}  // namespace cistern
