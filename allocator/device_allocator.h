#pragma once

// DeviceAllocator: one device's heap. The walk from a request to a block, the walk back,
// and the ladder when the driver refuses; each rung is a file of its own.
//
// One malloc: stream_hits.cpp, where the stream's own lock suffices; else device_allocator.cpp, then on a miss
// miss.cpp (the ladder's order) with segments.cpp, garbage_collection.cpp, oversize_release.cpp, full_flush.cpp
// and out_of_memory.cpp. One free: stream_hits.cpp, or device_allocator.cpp, and guarded_free.cpp when other
// streams used the block (capture_reuse.cpp within a capture). Expandable segments: range_growth.cpp,
// range_release.cpp and range_moves.cpp. Paged memory: paged_blocks.cpp and paged_release.cpp. Private pools:
// pool_recording.cpp, pool_leftovers.cpp and pool_checkpoint.cpp; streams that are over: ended_streams.cpp.
//
// Thread safety: any public member may be called from any thread; one lock a heap, and one a stream for what
// concerns that stream alone. The lock is given up around driver calls that can block and around callbacks;
// whoever gives it up looks again at what it needs afterwards.

#include <cistern/allocator.h>

#include "allocator/address_range.h"
#include "allocator/block_arena.h"
#include "allocator/block_cuts.h"
#include "allocator/block_map.h"
#include "allocator/brief_mutex.h"
#include "allocator/budgets.h"
#include "allocator/captured_frees.h"
#include "allocator/climb.h"
#include "allocator/device_cut.h"
#include "allocator/driver_scope.h"
#include "allocator/event_pools.h"
#include "allocator/heap_mutex.h"
#include "allocator/observers.h"
#include "allocator/page_source.h"
#include "allocator/paged_memory.h"
#include "allocator/pending_frees.h"
#include "allocator/pool_checkpoint.h"
#include "allocator/pool_routing.h"
#include "allocator/private_pools.h"
#include "allocator/segment_list.h"
#include "allocator/segment_source.h"
#include "allocator/size_policy.h"
#include "allocator/stream_heap.h"
#include "allocator/stream_heap_arena.h"
#include "allocator/stream_ordered_source.h"
#include "allocator/stream_pools.h"
#include "runtime/context.h"
#include "stats/history.h"
#include "stats/recorder.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace cistern {

class JsonWriter;
class SnapshotSource;

// What the heaps of one allocator share; all of it outlives them.
struct HeapSurroundings {
  Contexts& contexts;
  EventPools& event_pools;
  Observers& observers;
  SnapshotSource& snapshots;
};

// Standard error says that the address, which somebody freed, is not that of a live block.
void say_nothing_was_freed(std::uint64_t address) noexcept;

class DeviceAllocator {
 public:
  // Asks the driver for the device's memory size. Throws DriverError.
  DeviceAllocator(const HeapSurroundings& surroundings, int device, const AllocatorOptions& options,
                  const HistoryOptions& history);
  // Waits for pending frees and gives everything back, blocks in use included. Never throws.
  ~DeviceAllocator();
  DeviceAllocator(const DeviceAllocator&) = delete;
  DeviceAllocator& operator=(const DeviceAllocator&) = delete;

  // See cistern::allocate. Requires: bytes > 0.
  [[nodiscard]] void* allocate(std::size_t bytes, const StreamIdentity& stream) {
    void* const pointer = allocate_by_stream(bytes, stream);
    return pointer != nullptr ? pointer : allocate_by_heap(bytes, stream);
  }
  // The same from a pool, whatever is recorded.
  [[nodiscard]] void* allocate_in(PoolId id, std::size_t bytes, const StreamIdentity& stream);
  // Frees the live block at exactly `address`; false, with nothing changed, if there is none
  // in this heap. `last_use`, if not null, is a stream that used the block too.
  [[nodiscard]] bool free(std::uint64_t address, const StreamUse* last_use) noexcept;
  // stream_hits.cpp: the same with the lock of the block's stream alone; false, with nothing changed, where that does
  // not suffice.
  [[nodiscard]] bool free_by_stream(std::uint64_t address) noexcept;
  // Adds a stream to the users of the live block at exactly `address`, which takes `use`; false, with `use` as it
  // was, if there is none.
  bool record_use(std::uint64_t address, StreamUse& use);
  // containing_block.cpp: the same for the live block that the byte at `address` belongs to. O(1) at its start, else
  // O(segments and blocks of one); O(blocks) in paged memory.
  bool record_use_around(std::uint64_t address, StreamUse& use);
  // held_blocks.cpp: a block that other processes use stays allocated, and is counted so, until they
  // are done. Holds the live block at exactly `address` once more and returns the bytes that were
  // asked for; nothing if there is none, or if it was freed.
  [[nodiscard]] std::optional<std::size_t> hold(std::uint64_t address);
  // Ends one hold; with the last, a block that was freed meanwhile is freed now. Requires: it is held.
  void let_go(std::uint64_t address) noexcept;
  // range_moves.cpp: the pages that the live block at exactly `address` lies in; nothing if there is
  // none. Without pages the block is in no expandable segment.
  struct BlockPages {
    bool is_paged = false;  // in paged memory, whose handles serve other blocks as well
    Pages pages;
    std::size_t offset = 0;  // of the block in the first
    std::size_t bytes = 0;   // that were asked for
    bool shareable = false;
  };
  [[nodiscard]] std::optional<BlockPages> pages_of(std::uint64_t address) const;
  // Whether the block was freed, and stays only because it is held.
  [[nodiscard]] bool is_freed_while_held(std::uint64_t address) const;

  // Whether anything was ever allocated: from then on the policy is fixed.
  [[nodiscard]] bool is_used() const noexcept { return highest_address_.load(std::memory_order_acquire) != 0; }
  // Whether a live block begins at `address`.
  [[nodiscard]] bool owns(std::uint64_t address) const noexcept;
  // What the live block that begins there was asked for.
  [[nodiscard]] std::optional<std::size_t> requested_bytes(std::uint64_t address) const noexcept;
  // False: no block of this heap ever began at `address`. Takes no lock: it tells which of
  // several heaps need not be asked.
  [[nodiscard]] bool may_own(std::uint64_t address) const noexcept {
    return address >= lowest_address_.load(std::memory_order_acquire) &&
           address < highest_address_.load(std::memory_order_acquire);
  }

  // See cistern::release_stream.
  void end_stream(const StreamUse& stream) noexcept;

  // In two steps, of which only the first may fail, so that all devices change or none.
  // Requires: valid options. Throws std::bad_alloc.
  [[nodiscard]] HistoryRing prepare_history(const HistoryOptions& options) const;
  void record_history(HistoryOptions&& options, HistoryRing&& ring) noexcept;
  [[nodiscard]] HistoryInfo history_info() const;
  // What entries carry from now on, in two steps as well: a text is prepared, and then used or dropped.
  // Throws std::bad_alloc.
  [[nodiscard]] TextId prepare_history_text(const SharedText& text);
  void use_history_text(TextId text) noexcept;
  void drop_history_text(TextId text) noexcept;
  // False, with nothing recorded, if no live block begins at `address`.
  bool annotate(std::uint64_t address, const SharedText& text);

  // See mem_pool.h for these.
  void begin_allocate_to_pool(PoolId id, const RecordingFilter& filter);
  void end_allocate_to_pool(PoolId id);
  void release_pool(PoolId id);
  [[nodiscard]] std::size_t pool_use_count(PoolId id) const;
  [[nodiscard]] std::shared_ptr<const PoolCheckpoint::State> checkpoint_pool(PoolId id);
  PoolRestored restore_pool(const PoolCheckpoint::State& checkpoint);
  // A MemPool's pool, with one use, which end_pool takes away. `parent`: (0, 0) is none.
  void add_pool(PoolId id, PrivatePoolSettings settings, PoolId parent);
  void end_pool(PoolId id) noexcept;
  // A MemPoolGuard's begin and end, each with one use. Returns the guard's number.
  [[nodiscard]] std::uint64_t enter_pool(PoolId id);
  void leave_pool(PoolId id, std::uint64_t guard) noexcept;
  [[nodiscard]] MemoryStats pool_stats(PoolId id) const;
  void reset_pool_peaks(PoolId id);
  std::size_t trim_pool(PoolId id);

  [[nodiscard]] int device() const { return device_; }
  void empty_cache();
  std::size_t trim(std::size_t target_bytes);
  // Asks the driver for what the options need. Throws DriverError. Before set_options, with the same
  // options.
  void prepare(const AllocatorOptions& options);
  // False: they ask for expandable segments, which this device cannot have. Then it has others.
  [[nodiscard]] bool can_serve(const AllocatorOptions& options) const;
  void set_options(AllocatorOptions&& options) noexcept;
  // The device may use the memory of expandable segments, of those that come too. Throws DriverError.
  void allow_peer(CUdevice peer);
  void set_memory_fraction(double fraction);
  [[nodiscard]] double memory_fraction() const;

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
    std::vector<StackFigures> stacks;  // the largest first; empty if no live block's stack is known
    std::optional<PendingFree> oldest_pending_free;
    std::optional<std::size_t> limit_bytes;
    AllocatorOptions options;
  };
  [[nodiscard]] Figures figures() const;
  // heap_figures.cpp: whose the heap's memory is. See stats.h for these.
  [[nodiscard]] std::vector<TagStats> tag_stats() const;
  [[nodiscard]] std::vector<StreamStats> stream_stats() const;
  [[nodiscard]] std::optional<PendingFree> oldest_pending_free() const;
  [[nodiscard]] FragmentationStats fragmentation(std::size_t request_bytes) const;
  [[nodiscard]] DeviceMemoryStats device_memory_stats() const;
  // The scope must stay where it is until it is closed; what it saw is in its opener's hands then.
  void open_scope(OpenScope& scope) noexcept;
  [[nodiscard]] MemoryStats scope_stats(const OpenScope& scope) const noexcept;
  MemoryStats close_scope(OpenScope& scope) noexcept;
  // budgets.cpp. Throws std::bad_alloc, unchanged; removing what is not there is nothing.
  void add_budget(std::shared_ptr<const BudgetLimits> limits);
  void remove_budget(const BudgetLimits* limits) noexcept;
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

 private:
  friend class HeapMutex;
  // The heap's lock, and on whose account it is held.
  struct Lock : std::unique_lock<HeapMutex> {
    using std::unique_lock<HeapMutex>::unique_lock;
    StackId stack = kNoStackId;  // of the request; none: entries carry the allocation's
  };
  // Holds the heap's lock for a public call, and after it lets go what was retired under it.
  class Section {
   public:
    explicit Section(DeviceAllocator& heap) : lock(heap.provided_mutex()), heap_(heap) {}
    // On the account of the request that gathered the stack.
    Section(DeviceAllocator& heap, const GatheredStack& stack) : Section(heap) {
      if (stack.get().depth == 0) return;
      lock.stack = heap_.history_.intern(stack.get());
      if (lock.stack != kNoStackId) ++heap_.requests_with_stacks_;
    }
    ~Section() {
      if (lock.owns_lock() && lock.stack == kNoStackId && heap_.retired_.empty()) [[likely]]
        return;
      if (!lock.owns_lock()) lock.lock();
      if (lock.stack != kNoStackId) {
        heap_.history_.let_go(lock.stack);
        --heap_.requests_with_stacks_;
      }
      if (heap_.retired_.empty()) return;
      const Retired retired = std::exchange(heap_.retired_, Retired{});
      lock.unlock();
    }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;
    Lock lock;

   private:
    DeviceAllocator& heap_;
  };
  // The lock of a call that records, which first brings what the history will need, while it is not held.
  [[nodiscard]] HeapMutex& provided_mutex() noexcept {
    history_.provide();
    return mutex_;
  }
  struct Request {
    std::size_t bytes = 0;          // asked for
    std::size_t rounded = 0;        // the block's
    std::size_t segment_bytes = 0;  // what the driver would be asked for; of a request that may reach it
    TagId tag = kUntagged;          // of the thread that asks
    PoolKind kind = PoolKind::small;
    StreamHeap* pools = nullptr;
  };

  // stream_hits.cpp: hits and frees with the lock of their stream alone.
  [[nodiscard]] void* allocate_by_stream(std::size_t bytes, const StreamIdentity& stream) noexcept;
  [[nodiscard]] bool record_use_by_stream(std::uint64_t address, StreamUse& use);
  [[nodiscard]] bool may_serve(const StreamHeap& heap) const noexcept;
  [[nodiscard]] bool can_serve_by_stream() const noexcept;
  [[nodiscard]] void* take_hit(StreamHeap& heap, std::size_t bytes) noexcept;
  [[nodiscard]] bool free_hit(StreamHeap& heap, std::uint64_t address) noexcept;
  [[nodiscard]] static bool count_free(StreamHeap& heap, const Block& block, const FreeNeighbours& free) noexcept;
  [[nodiscard]] bool settle_by_stream(StreamHeap& heap) noexcept;
  [[nodiscard]] bool carry_out(StreamHeap& heap) noexcept;
  // `kAction`: alloc, or kFreed.
  template <std::uint64_t kAction>
  void trace_by_stream(StreamHeap& heap, const Block& block) noexcept;
  template <std::uint64_t kAction>
  void write_by_stream(StreamHeap& heap, const Block& block) noexcept;
  void write_staged_alone(StreamHeap& heap) noexcept;
  void write_staged(StreamHeap& heap) noexcept;
  // The same by who has the heap's lock.
  void settle(StreamHeap& heap) noexcept {
    if (heap.lazy_free.block != nullptr) settle_lazy_free(heap);
    if (!heap.stage.events().empty()) write_staged(heap);
    if (heap.returned.first() != 0) free_returned(heap);
    if (heap.spares.size() > kMostSpares) heap.spares.move_to(arena_.spares(), heap.spares.size() - kMostSpares / 4);
  }
  // More than what a stream's hits take between two looks at the heap serve others better.
  static constexpr std::size_t kMostSpares = 256;
  [[nodiscard]] bool hand_back(StreamHeap& heap, std::uint64_t address) noexcept;
  [[nodiscard]] bool take_returned(StreamHeap& heap) noexcept;
  void free_returned(StreamHeap& heap) noexcept;
  [[nodiscard]] static bool is_free_at_once(const Block* block) noexcept {
    return block != nullptr && !block->has_uses && block->holds == 0 && block->stack == kNoStackId;
  }
  void settle_lazy_free(StreamHeap& heap) noexcept;

  // device_allocator.cpp: hits, and frees on the block's own stream, with the heap's lock.
  [[nodiscard]] void* allocate_by_heap(std::size_t bytes, const StreamIdentity& stream);
  [[nodiscard]] void* serve(Request& request, const StreamIdentity& stream, Lock& lock);
  [[nodiscard]] Request make_request(std::size_t bytes) const;
  [[nodiscard]] AllocatorOptions served(AllocatorOptions options) const;
  [[nodiscard]] Block* provide(Block* found, Request& request, Lock& lock);
  void poll_pending(Lock& lock) {
    if (unrecorded_frees_ != nullptr || !pending_.empty()) complete_pending(lock);
  }
  void complete_pending(Lock& lock);
  [[nodiscard]] Block* find_free_block(const Request& request);
  [[nodiscard]] Block* take_free_block(const Request& request);
  [[nodiscard]] Block* hand_out(Block* block, const Request& request, const Lock& lock);
  [[nodiscard]] Block* hand_out_overflow(Block* block, const Request& request, const Lock& lock);
  [[nodiscard]] Block* take_into_use(Block* free, const Request& request, std::size_t bytes, const Lock& lock);
  void split(Block* block, std::size_t bytes);
  [[nodiscard]] bool should_split(const Block& block, const Request& request) const {
    return policy_.should_split(block.bytes, request.rounded, request.kind) && !is_kept_whole(block);
  }
  [[nodiscard]] static bool is_kept_whole(const Block& block) {
    const Segment& segment = *block.segment;
    return !segment.is_plain && segment.owner->home != nullptr && segment.owner->home->settings.no_split;
  }
  [[nodiscard]] static std::int64_t as_signed(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }
  // For the heap's recorder; a pool's share is not told by tag and stream.
  [[nodiscard]] static Attribution attribution(const Block& block) {
    return {block.tag, &block.segment->owner->ledger};
  }
  [[nodiscard]] Block* settle(Block* block);
  [[nodiscard]] BlockMap& map_of(const Segment& segment) {
    return segment.is_found_by_page ? segment.owner->live : block_map_;
  }
  [[nodiscard]] Block* find_live(std::uint64_t address) const noexcept;
  [[nodiscard]] Block* find_live_around(std::uint64_t address) const noexcept;
  void complete_plain_free(Block* block, const Lock& lock);
  void free_at_once(Block* block);
  Block* complete_free(Block* block, const Lock& lock);
  void free_in_pool(Block* block, Lock& lock) noexcept;
  void begin_use(Block* block, const Request& request, const InactiveSplitChange& change, const Lock& lock) noexcept;
  void put_in_pool(Block* block);
  // Of a segment that is wholly free now.
  void note_age(const Block& free) {
    if (!free.is_split()) free.segment->free_since = searches_[static_cast<std::size_t>(free.segment->kind)];
  }
  void put_back(Block* block);

  // guarded_free.cpp: frees that wait for other streams.
  [[nodiscard]] bool is_own_stream(const Block& block, const StreamUse& use) const {
    return use.device == device_ && use.stream.id == block.segment->stream.id;
  }
  void add_use(Block* block, StreamUse&& use);
  [[nodiscard]] bool note_use(Block* block, const StreamUse& use, Lock& lock) noexcept;
  void begin_waiting(Block* block) const noexcept;
  [[nodiscard]] CUcontext context_of(int device) const {
    return device == device_ ? context_ : surroundings_.contexts.primary(device);
  }
  void free_behind_events(Block* block, Lock& lock) noexcept;
  CUresult guard(Block* block, Lock& lock) noexcept;
  void retire(StreamUses& uses, StreamHeap& owner) noexcept;
  [[nodiscard]] CUresult record_event(const StreamUse& use, PendingFrees::Entry* entry, bool during_capture,
                                      bool may_wait) noexcept;
  [[nodiscard]] bool names_its_stream(const StreamUse& use) const;
  [[nodiscard]] bool wait_for_device_of(const StreamUse& use) const noexcept;
  void queue_or_wait(const PendingFrees::Entry& entry, Lock& lock) noexcept;
  void retry_unrecorded_frees(Lock& lock);
  void put_off(Block* block) noexcept;
  [[nodiscard]] Block* take_due_frees() noexcept;
  void drop_uses_in_capture(Block* block) noexcept;

  // capture_reuse.cpp: reuse within a capture.
  void note_captured_free(Block* block) noexcept;
  [[nodiscard]] bool find_capture_point(const StreamUse& use, CapturePoint* point) const;
  [[nodiscard]] std::unordered_set<CUgraphNode> nodes_before(const CapturePoint& point) const;
  void complete_captured_frees(const StreamIdentity& stream, const Lock& lock);
  void take_back(Block* block) noexcept;
  [[nodiscard]] bool is_captured_still(const Block& block) const noexcept;

  // pool_recording.cpp: what is recorded, and which pool serves.
  [[nodiscard]] PrivatePool& used_pool(PoolId id) const;
  [[nodiscard]] StreamPools& route(const StreamIdentity& stream);
  [[nodiscard]] bool is_captured(const StreamUse& use) const noexcept;
  [[nodiscard]] bool is_captured_in_context(const StreamIdentity& stream) const noexcept;
  [[nodiscard]] bool capture_under_way() const;
  [[nodiscard]] bool follows_2_4() const { return options_.pytorch_rules == PytorchRules::v2_4; }

  // pool_leftovers.cpp: what pools without a use leave.
  [[nodiscard]] Block* take_from_overflow(const Request& request);
  void release_leftovers(Lock& lock) noexcept;
  void move_leftovers(Lock& lock);
  void move_segment(Segment* segment, StreamHeap& to) noexcept;

  // pool_checkpoint.cpp
  void settle_pending_of(PoolId id, Lock& lock);
  [[nodiscard]] std::vector<Segment*> segments_named_by(const PoolCheckpoint::State& checkpoint) const;
  void order_behind_uses(const PrivatePool& pool, Lock& lock);
  void free_live_blocks(const PrivatePool& pool, std::vector<void*>& freed, const Lock& lock);
  Block* free_now(Block* block, const Lock& lock) noexcept;
  [[nodiscard]] Block* free_block_at(Segment* segment, std::uint64_t address) noexcept;
  void cut_segment(Segment* segment, PoolCheckpoint::State::SegmentRecord& record, std::vector<void*>& live,
                   const Lock& lock);

  // ended_streams.cpp
  [[nodiscard]] bool is_waited_for(std::uint64_t stream_id) const noexcept;
  [[nodiscard]] Block* take_over_segment(const Request& request, Lock& lock);
  [[nodiscard]] bool order_behind(const std::shared_ptr<StreamEnd>& end, const Request& request, Lock& lock) noexcept;

  // paged_blocks.cpp: blocks in paged memory.
  [[nodiscard]] bool is_paged(const Request& request) const {
    return paged_ != nullptr && options_.policy == Policy::paged && request.pools->home == nullptr;
  }
  [[nodiscard]] Block* serve_paged(Request& request, Lock& lock);
  enum class Growth {
    unasked,  // only if nobody wants to be asked before memory is created
    allowed,
    left,  // what the driver had left when it refused more
  };
  [[nodiscard]] Block* take_known_place(const Request& request, const Lock& lock);
  [[nodiscard]] std::optional<PagedBlock> find_place(const Request& request, Lock& lock);
  [[nodiscard]] std::optional<PagedBlock> try_place(const Request& request, Growth growth, std::int64_t& pages_left,
                                                    Lock& lock);
  // What a plan takes of the driver beside the heap's lock.
  struct PlanOrder {
    StreamUse owner;  // whose work so far the request's stream is to wait for
    StreamHeap* heap = nullptr;
    std::shared_ptr<StreamEnd> end;
    StreamNumber number = 0;
    bool is_done = false;  // it was waited for
  };
  [[nodiscard]] std::vector<PlanOrder> orders_of(const PagePlan& plan) const;
  [[nodiscard]] DevicePages::Outcome carry_out(const PagePlan& plan, const std::vector<PlanOrder>& orders,
                                               const Request& request, Lock& lock) noexcept;
  [[nodiscard]] CUresult order_behind(const std::vector<PlanOrder>& orders, const StreamUse& user, bool during_capture,
                                      bool may_wait) noexcept;
  [[nodiscard]] PagedBlock commit(PagePlan& plan, const Lock& lock) noexcept;
  [[nodiscard]] StreamNumber paged_stream(StreamHeap& heap);
  void set_page_limit(Growth growth, std::int64_t pages_left) noexcept;
  [[nodiscard]] Block* hand_out(const PagedBlock& place, const Request& request, const Lock& lock) noexcept;
  void free_paged_at_once(Block* block, const Lock& lock) noexcept;
  Block* complete_paged_free(Block* block, const Lock& lock);

  // paged_release.cpp
  std::size_t release_paged(std::size_t most, Lock& lock);
  [[nodiscard]] std::vector<PlanOrder> orders_of(const Departure& departure) const;
  [[nodiscard]] DevicePages::Outcome carry_out(Departure& departure, std::vector<PlanOrder>& orders,
                                               bool during_capture) noexcept;
  [[nodiscard]] std::size_t take_out(const Departure& departure, const Lock& lock) noexcept;
  void free_empty_arenas(Lock& lock) noexcept;
  void drop_idle_paged_streams() noexcept;

  // paged_retirement.cpp
  void retire_mappings(Lock& lock) noexcept;
  void begin_retirement(Lock& lock) noexcept;
  [[nodiscard]] bool is_work_over(PagedMemory::Retirement& retirement) const noexcept;

  // paged_snapshot.cpp
  // Writes its segments, by address, each after write_below(where its addresses begin). Takes no host memory.
  void stream_paged(JsonWriter& json, StackIndex first_stack,
                    const std::function<void(std::uint64_t)>& write_below) const;
  void cut_paged(DeviceCut& cut) const;
  void paged_ranges(std::vector<PagedRange>& ranges) const;
  void add_paged_segments(std::vector<SegmentInfo>& all, const Segment& of_stream, std::vector<BlockInfo> blocks) const;
  [[nodiscard]] PagedCut::Size size_of_paged_cut() const;
  void add_paged(Usage& usage) const;

  // miss.cpp: the ladder.
  [[nodiscard]] Block* serve_miss(const Request& request, Lock& lock);
  [[nodiscard]] bool call_free_memory_callbacks(const Request& request, Lock& lock);

  // range_search.cpp
  [[nodiscard]] bool expands(const Request& request) const;
  [[nodiscard]] bool serves(const Segment& segment) const;

  // range_growth.cpp
  [[nodiscard]] Block* grow(const Request& request, Climb& climb, Lock& lock);
  void provide_for_growth(const Request& request, Climb& climb);
  [[nodiscard]] std::optional<AddressRange::Room> find_room(const Request& request) const;
  [[nodiscard]] bool add_range(const Request& request, Lock& lock);
  void link_range(AddressRange* range) noexcept;
  [[nodiscard]] Block* map_pages(AddressRange& range, const Pages& gap, Climb& climb, Lock& lock);
  void count_mapped(std::size_t came, std::size_t went) noexcept;
  [[nodiscard]] Block* take_in(Segment* segment, Block* block, const Lock& lock) noexcept;
  [[nodiscard]] Block* land(Segment* segment) noexcept;
  Segment* join(Segment* low, Segment* high) noexcept;

  // range_release.cpp
  using RangeFilter = std::function<bool(const AddressRange&)>;
  std::size_t release_ranges(const RangeFilter& chosen, std::size_t most, Lock& lock);
  [[nodiscard]] SegmentList cut_free_pages(const RangeFilter& chosen, std::size_t most);
  void cut_segment_pages(Segment* segment, std::size_t& left, SegmentList& departing) noexcept;
  [[nodiscard]] bool can_cut_out(const Block& block, const Pages& pages) noexcept;
  [[nodiscard]] Segment* cut_out(Block* block, const Pages& pages) noexcept;
  [[nodiscard]] Segment* part_before(Block* block) noexcept;
  [[nodiscard]] PageSource::Outcome unmap_all(SegmentList& departing, SegmentList& tried, bool during_capture) noexcept;
  [[nodiscard]] CUresult wait_for_owner(const StreamHeap& owner, bool during_capture) const noexcept;
  [[nodiscard]] std::size_t take_out(Segment* segment, const Lock& lock) noexcept;
  void drop_empty_ranges(Lock& lock) noexcept;
  void keep_spare(std::unique_ptr<AddressRange> range) noexcept;
  void abandon_ranges() noexcept;

  // range_moves.cpp
  void move_range(AddressRange& range, StreamHeap& to) noexcept;
  void close_range(const AddressRange& range) noexcept;
  void open_range(const AddressRange& range) noexcept;
  [[nodiscard]] Block* take_over_range(const Request& request, Lock& lock);
  void move_leftover_ranges(const RangeFilter& chosen, PrivatePool& heir);
  void wait_for_grants(Lock& lock);
  void choose_search() noexcept;

  // stream_ordered_memory.cpp: `async`.
  [[nodiscard]] bool is_stream_ordered() const noexcept {
    return options_.policy == Policy::async && stream_ordered_ != nullptr;
  }
  void prepare_driver_pool();
  void release_idle(Lock& lock) noexcept;
  std::size_t trim_driver_pool(std::size_t most_bytes, Lock& lock);

  // segments.cpp: from and to the driver.
  [[nodiscard]] Block* allocate_segment(const Request& request, Climb& climb, Lock& lock);
  // Of the default pool under `async`, the driver's pool. Private pools keep their memory, and so have it of the
  // device.
  [[nodiscard]] SegmentSource& source_of(const StreamHeap& owner, bool stream_ordered) noexcept {
    if (stream_ordered && owner.home == nullptr) return *stream_ordered_;
    return source_;
  }
  [[nodiscard]] Block* add_segment(const Climb::Metadata& metadata, const Request& request, std::uint64_t address,
                                   const Lock& lock);
  [[nodiscard]] std::size_t release_segments(SegmentList segments, Lock& lock);
  void release_uncached(Block* block, Lock& lock) noexcept;
  void remove_segment(Segment* segment);
  void link_segment(Segment* segment) noexcept;
  void note_addresses(std::uint64_t begin, std::uint64_t end) noexcept;
  void unlink_segment(Segment* segment) noexcept;
  void wait_for_reclaims(Lock& lock);

  // budgets.cpp
  [[nodiscard]] LiveBytes live_bytes(TagId tag) const;
  void require_within_budgets(const Request& request, Block* block, Lock& lock);
  [[noreturn]] void refuse_over_budget(const BudgetLimits& limits, const Request& request, std::size_t bytes,
                                       Lock& lock);
  void tell_budgets(TagId tag, std::size_t bytes, Lock& lock) noexcept;
  // Whether a call gathers its stack, and how much of it: asked once, before the lock is taken.
  struct Gathering {
    std::uint32_t packed = 0;
    [[nodiscard]] bool includes(HistoryContext least) const { return (packed & 0xff) >= static_cast<unsigned>(least); }
    [[nodiscard]] std::size_t most_frames() const { return packed >> 8; }
  };
  [[nodiscard]] Gathering gathering() const noexcept { return {gathering_.load(std::memory_order_relaxed)}; }
  [[nodiscard]] static TracePoint point_of(const Segment& segment, const Lock& lock) {
    return point_of(segment, lock.stack);
  }
  [[nodiscard]] static TracePoint point_of(const Block& block, const Lock& lock) { return point_of(block, lock.stack); }
  [[nodiscard]] static TracePoint point_of(const Segment& segment, StackId of_request);
  [[nodiscard]] static TracePoint point_of(const Block& block, StackId of_request);

  // device_snapshot.cpp
  [[nodiscard]] DeviceCut::Size size_of_cut() const;
  void take_cut(DeviceCut& cut) const;
  template <class Visit>
  void for_each_segment(Visit&& visit) const;
  static void count_as_gone(const Segment& segment, MemoryStats& stats);

  // The other rungs, each in the file of its name.
  [[nodiscard]] bool collects_garbage() const;
  void collect_garbage(Lock& lock);
  [[nodiscard]] bool release_oversize(const Request& request, Lock& lock);
  void full_flush(Lock& lock);
  void wait_for_pending(Lock& lock);
  [[nodiscard]] SegmentList wholly_free_segments(bool of_default_pool = true) const;
  // By which PyTorch gives free blocks back.
  using ReleaseOrder = std::tuple<bool, PoolId, bool, std::int64_t, std::size_t, std::uint64_t>;
  [[nodiscard]] static ReleaseOrder release_order(const StreamHeap& owner, PoolKind kind, std::size_t bytes,
                                                  std::uint64_t address);
  [[noreturn]] void fail(const Request& request, Lock& lock);
  [[noreturn]] void refuse_too_large(std::size_t bytes);
  [[nodiscard]] MemoryInfo device_memory() const;
  [[nodiscard]] std::optional<MemoryInfo> memory_beside_heap(Lock& lock) const noexcept;
  [[nodiscard]] std::optional<UnusableBlock> find_unusable(const Request& request) const;
  [[nodiscard]] const Block* found_late(const Request& request) const;
  [[nodiscard]] OutOfMemoryReport make_report(const Request& request, const std::optional<MemoryInfo>& memory) const;

  [[nodiscard]] Usage usage_locked(const PrivatePool* home = nullptr) const;
  void apply_fraction(double fraction);
  void check_segment(const Segment& segment) const;
  void check_private_pools() const;
  [[nodiscard]] std::vector<TagStats> tag_stats_locked() const;
  [[nodiscard]] std::vector<StreamStats> stream_stats_locked() const;
  [[nodiscard]] std::vector<StackFigures> stack_figures_locked() const;
  [[nodiscard]] std::optional<PendingFree> oldest_pending_free_locked() const;
  void check_tags() const;
  void check_streams() const;
  // Visits each free that waits for another stream: visit(block, stream, its device).
  template <class Visit>
  void for_each_awaited(Visit&& visit) const;
  void check_ranges() const;
  void check_paged(const Segment& segment) const;
  void check_history() const;

  const DriverApi& api_;
  // Nobody wants to know on which thread a block is freed.
  const bool hands_back_ = api_.note_free.function == nullptr;
  HeapSurroundings surroundings_;
  const int device_;
  const CUcontext context_;
  std::size_t device_total_bytes_ = 0;
  DeviceSegmentSource source_;
  std::unique_ptr<StreamOrderedSource> stream_ordered_;  // once `async` is asked for; never goes again
  // Of expandable segments and paged memory: once they are asked for, where the device has them. Never go again.
  std::unique_ptr<PageSource> pages_;
  std::unique_ptr<PagedMemory> paged_;

  // The range that all segments ever lay in; written under the lock.
  std::atomic<std::uint64_t> lowest_address_{~std::uint64_t{0}};
  std::atomic<std::uint64_t> highest_address_{0};

  // The history's context and max_frames, as one so that they change together.
  std::atomic<std::uint32_t> gathering_{0};

  mutable HeapMutex mutex_{*this};
  // All below is guarded by mutex_.
  AllocatorOptions options_;
  SizePolicy policy_;
  bool caches_;                // false: `direct` and `async`
  bool has_idle_ = false;      // under `async`: something is free that has not gone back
  bool plain_search_ = false;  // see choose_search
  DeviceHistory history_;
  std::uint64_t requests_with_stacks_ = 0;  // under way, each of which holds its own
  Recorder recorder_;
  BlockArena arena_;
  BlockMap block_map_;  // of live blocks that are not found by page
  StreamHeapArena stream_heaps_{mutex_, recorder_};
  StreamPools pools_{stream_heaps_};  // the default pool
  PrivatePools private_pools_{stream_heaps_};
  // Nothing is under way that a hit, or a free of a block that no other stream used, would have to look at:
  // streams may serve themselves. As of the last time that somebody had the lock; read under that of a stream.
  bool serves_by_stream_ = false;
  bool one_stream_serves_ = false;  // and the history is its own
  // Of streams that serve themselves: one at a time takes places in the history. Away from what hits read.
  alignas(64) BriefMutex staged_mutex_;
  PoolRouting routing_;
  std::uint64_t guards_ = 0;  // made so far
  bool leftovers_ = false;    // a MemPool without a use may have free segments
  Budgets budgets_;
  PendingFrees pending_;
  // Frees without their events: refused by the driver, or put off by a capture; linked by `left`.
  Block* unrecorded_frees_ = nullptr;
  Block* last_unrecorded_free_ = nullptr;  // of that list
  CapturedFrees captured_frees_;           // of that list, what its capture may have again
  Retired retired_;
  Segment* segments_ = nullptr;                // all of them, newest first
  AddressRange* ranges_ = nullptr;             // of expandable segments, by address
  std::size_t mapped_pages_ = 0;               // of those, and on their way
  std::unique_ptr<AddressRange> spare_range_;  // and host memory for one more, in the end
  PageSource::Room spare_handles_;
  std::vector<CUdevice> peers_;     // that may use them; the same while a map is under way
  int range_operations_ = 0;        // maps and unmaps under way, with the lock given up
  bool grants_access_ = false;      // and none may begin: access is being given
  bool out_of_addresses_ = false;   // as of the last range that was asked for
  std::size_t held_bytes_ = 0;      // of all segments
  std::size_t arriving_bytes_ = 0;  // asked of the driver by threads that gave the lock up
  double fraction_ = 1.0;
  std::size_t limit_bytes_ = kUnlimited;
  std::array<std::uint64_t, 2> searches_{};  // of each pool, counted while garbage collection is on
  // Threads that are waiting for frees or giving segments back with the lock given up: a
  // request must not fail before they are done.
  int reclaims_in_flight_ = 0;
  std::condition_variable_any reclaimed_;
};

// What a transition of a block or segment is told with: on the request's account, or, if that
// brought no stack, its allocation's.
inline TracePoint DeviceAllocator::point_of(const Segment& segment, StackId of_request) {
  TracePoint at;
  at.address = segment.address;
  at.size = static_cast<std::int64_t>(segment.bytes);
  at.stream = stream_number(segment.stream);
  if (!segment.is_plain) {
    if (const PrivatePool* home = segment.owner->home) at.pool = encode_pool(home->id.first, home->id.second);
  }
  at.stack = of_request != kNoStackId ? of_request : segment.stack;
  return at;
}

inline TracePoint DeviceAllocator::point_of(const Block& block, StackId of_request) {
  TracePoint at = point_of(*block.segment, of_request);
  at.address = block.address;
  at.size = static_cast<std::int64_t>(block.requested);
  at.stack = of_request != kNoStackId ? of_request : block.stack;
  at.tag = block.tag;
  return at;
}

}  // namespace cistern
