#pragma once

// HeapReports: what one device's heap tells of itself: statistics, snapshots, whose its memory is, and the walk that
// verifies it. Nothing here changes a block.
//
// Thread safety: any public member may be called from any thread; each takes the heap's lock, unless it says otherwise.

#include "allocator/device_cut.h"
#include "allocator/heap_state.h"
#include "allocator/pages.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace cistern {

class JsonWriter;

class HeapReports : protected HeapState {
 public:
  [[nodiscard]] int device() const { return device_; }
  // Whether anything was ever allocated: from then on the policy is fixed.
  [[nodiscard]] bool is_used() const noexcept { return highest_address_.load(std::memory_order_relaxed) != 0; }
  // False: no block of this heap ever began at `address`. Takes no lock: it tells which of
  // several heaps need not be asked.
  [[nodiscard]] bool may_own(std::uint64_t address) const noexcept {
    return address >= lowest_address_.load(std::memory_order_relaxed) &&
           address < highest_address_.load(std::memory_order_relaxed);
  }
  // Whether the block was freed, and stays only because it is held.
  [[nodiscard]] bool is_freed_while_held(std::uint64_t address) const;
  // range_moves.cpp: the pages that the live block at exactly `address` lies in; nothing if there is
  // none. Without pages the block is in no expandable segment.
  struct BlockPages {
    bool is_paged = false;           // in paged memory, whose handles serve other blocks as well
    bool is_stream_ordered = false;  // an allocation of the driver's pool
    Pages pages;
    std::size_t offset = 0;  // of the block in the first
    std::size_t bytes = 0;   // that were asked for
    bool shareable = false;
  };
  [[nodiscard]] std::optional<BlockPages> pages_of(std::uint64_t address) const;
  // Whether a capture is under way, on any thread.
  [[nodiscard]] bool knows_capture() const;
  [[nodiscard]] HistoryInfo history_info() const;
  [[nodiscard]] std::size_t pool_use_count(PoolId id) const;
  [[nodiscard]] MemoryStats pool_stats(PoolId id) const;
  void reset_pool_peaks(PoolId id);
  // False: they ask for expandable segments, which this device cannot have. Then it has others.
  [[nodiscard]] bool can_serve(const AllocatorOptions& options) const;
  [[nodiscard]] double memory_fraction() const;
  // How many requests for paged memory found no addresses, so that segments served them.
  [[nodiscard]] std::uint64_t requests_without_addresses() const;

  // `pools`, if given, gets what private pools have reserved, of the same moment.
  [[nodiscard]] MemoryStats stats(ReservedByPrivatePool* pools = nullptr) const;
  void reset_peak_stats();
  void reset_accumulated_stats();
  // Adds this heap's segments, by address, its statistics and its history to `snapshot`. Other
  // threads are kept waiting for no longer than it takes to copy the tables of blocks and entries.
  void add_to(Snapshot& snapshot, SnapshotStacks& stacks);
  // The segments of one pool, by address.
  [[nodiscard]] std::vector<SegmentInfo> segments_of(PoolId id) const;
  // Where the heap's bytes are, by walking its blocks: for reports, O(blocks).
  struct Usage {
    MemoryStats stats;
    std::size_t pending = 0;              // freed, and awaited by other streams
    std::size_t pending_requested = 0;    // what callers had asked for of it
    std::size_t free_whole = 0;           // in wholly free segments
    std::size_t free_split = 0;           // in segments that are partly in use
    std::size_t free_private = 0;         // in private pools, which keep it; in none of the two above
    std::size_t own_pool_free_split = 0;  // of the first two, in the private pool `home`
    std::size_t own_pool_free_whole = 0;
    std::size_t largest_free_block = 0;
  };
  [[nodiscard]] Usage usage() const;
  // The live blocks of one stack.
  struct StackFigures {
    std::vector<std::uintptr_t> frames;  // of the largest kReportedOwners alone; no stack has none
    std::int64_t bytes = 0;
    std::int64_t blocks = 0;
    bool has_stack = false;
  };
  // All that a report of the heap needs, at one moment: O(blocks).
  struct Figures {
    Usage usage;
    std::vector<TagStats> tags;
    std::vector<StreamStats> streams;
    std::vector<HandOverStats> hand_overs;
    std::vector<StackFigures> stacks;  // the largest first; empty if no live block's stack is known
    std::optional<PendingFree> oldest_pending_free;
    std::optional<std::size_t> limit_bytes;
    AllocatorOptions options;
  };
  [[nodiscard]] Figures figures() const;
  // heap_figures.cpp: whose the heap's memory is. See stats.h for these.
  [[nodiscard]] std::vector<TagStats> tag_stats() const;
  [[nodiscard]] std::vector<StreamStats> stream_stats() const;
  [[nodiscard]] std::vector<HandOverStats> hand_over_stats() const;
  [[nodiscard]] std::optional<PendingFree> oldest_pending_free() const;
  [[nodiscard]] FragmentationStats fragmentation(std::size_t request_bytes) const;
  [[nodiscard]] DeviceMemoryStats device_memory_stats() const;
  // The scope must stay where it is until it is closed; what it saw is in its opener's hands then.
  void open_scope(OpenScope& scope) noexcept;
  [[nodiscard]] MemoryStats scope_stats(const OpenScope& scope) const noexcept;
  MemoryStats close_scope(OpenScope& scope) noexcept;
  // Verifies the heap's invariants: throws std::logic_error naming the first that fails.
  void check() const;

  // For fork, and for a snapshot that is written as it goes: nothing else but the next six may be
  // called between the two.
  void lock_for_fork() { mutex_.lock(); }
  void unlock_after_fork() { mutex_.unlock(); }
  // The parts of a snapshot, without host memory for a copy. The heap's stacks are numbered from
  // `first_stack` on in the snapshot's table.
  void stream_segments(JsonWriter& json, StackIndex first_stack) const;
  void stream_history(JsonWriter& json, StackIndex first_stack);
  void stream_stacks(JsonWriter& json) const;
  [[nodiscard]] MemoryStats stats_of_cut() const;
  [[nodiscard]] bool can_serve_while_locked(const AllocatorOptions& options) const noexcept;
  [[nodiscard]] const DeviceHistory& history() const noexcept { return history_; }

 protected:
  using HeapState::HeapState;
  ~HeapReports() = default;

  // containing_block.cpp
  [[nodiscard]] Block* find_live_around(std::uint64_t address) const noexcept;
  // pool_recording.cpp: the pool of that id, for a call that needs one in use.
  [[nodiscard]] PrivatePool& used_pool(PoolId id) const;
  // out_of_memory.cpp
  [[nodiscard]] MemoryInfo device_memory() const;

  // range_search.cpp
  [[nodiscard]] bool expands(const Request& request) const;
  [[nodiscard]] bool serves(const Segment& segment) const;

  // device_snapshot.cpp
  [[nodiscard]] DeviceCut::Size size_of_cut() const;
  void take_cut(DeviceCut& cut) const;
  [[nodiscard]] bool take_cut_into(DeviceCut& cut, DeviceCut::Size& size);
  template <class Visit>
  void for_each_segment(Visit&& visit) const;
  static void count_as_gone(const Segment& segment, MemoryStats& stats);

  // paged_snapshot.cpp
  // Writes its segments, by address, each after write_below(where its addresses begin). Takes no host memory.
  void stream_paged(JsonWriter& json, StackIndex first_stack,
                    const std::function<void(std::uint64_t)>& write_below) const;
  void cut_paged(DeviceCut& cut) const;
  void paged_ranges(std::vector<PagedRange>& ranges) const;
  [[nodiscard]] std::vector<FreeRun> free_runs_by_stream() const;
  void add_paged_segments(std::vector<SegmentInfo>& all, const Segment& of_stream, std::vector<BlockInfo> blocks,
                          std::span<const FreeRun> by_stream) const;
  [[nodiscard]] PagedCut::Size size_of_paged_cut() const;
  void add_paged(Usage& usage) const;

  [[nodiscard]] Usage usage_locked(const PrivatePool* home = nullptr) const;
  void check_segment(const Segment& segment) const;
  void check_private_pools() const;
  [[nodiscard]] std::vector<TagStats> tag_stats_locked() const;
  [[nodiscard]] std::vector<StreamStats> stream_stats_locked() const;
  [[nodiscard]] std::vector<HandOverStats> hand_over_stats_locked() const;
  [[nodiscard]] std::vector<StackFigures> stack_figures_locked() const;
  [[nodiscard]] std::optional<PendingFree> oldest_pending_free_locked() const;
  void check_tags() const;
  void check_streams() const;
  // Visits each free that waits for another stream: visit(block, stream, its device).
  template <class Visit>
  void for_each_awaited(Visit&& visit) const;
  void check_ranges() const;
  void check_pages_of(const AddressRange& range) const;
  void check_paged(const Segment& segment) const;
  void check_guests() const;
  void check_history() const;
};

}  // namespace cistern
