#pragma once

// DeviceAllocator: one device's heap. The walk from a request to a block, the walk back,
// and the ladder when the driver refuses; each rung is a file of its own.
//
// One malloc, in this order: allocate below; pair_hits.h, where the block that was freed last comes back;
// stream_hits.cpp, where the stream's own lock suffices (stream_steps.cpp, where its steps come again); else
// device_allocator.cpp, with heap_blocks.cpp; then on a miss miss.cpp (the ladder's order) with segments.cpp,
// garbage_collection.cpp, oversize_release.cpp, full_flush.cpp and out_of_memory.cpp.
//
// One free: DeviceHeaps::deallocate; pair_hits.h, where the block was handed out last; stream_hits.cpp; else
// device_allocator.cpp, with heap_blocks.cpp, and guarded_free.cpp when other streams used the block (capture_reuse.cpp
// within a capture).
//
// Expandable segments: range_growth.cpp, range_release.cpp and range_moves.cpp. Paged memory: paged_hits.cpp,
// paged_blocks.cpp, paged_release.cpp, paged_retirement.cpp and paged_decay.cpp. Private pools: pool_recording.cpp,
// pool_leftovers.cpp and pool_checkpoint.cpp; streams that are over: ended_streams.cpp.
//
// Thread safety: any public member may be called from any thread; one lock a heap, and one a stream for what
// concerns that stream alone. The lock is given up around driver calls that can block and around callbacks;
// whoever gives it up looks again at what it needs afterwards.

#include "allocator/climb.h"
#include "allocator/pool_checkpoint.h"
#include "allocator/segment_list.h"
#include "allocator/stream_hits.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

namespace cistern {

class DeviceAllocator : public StreamHits {
 public:
  // Asks the driver for the device's memory size. Throws DriverError.
  DeviceAllocator(const HeapSurroundings& surroundings, int device, const AllocatorOptions& options,
                  const HistoryOptions& history);
  // Waits for pending frees and gives everything back, blocks in use included. Never throws.
  ~DeviceAllocator();
  DeviceAllocator(const DeviceAllocator&) = delete;
  DeviceAllocator& operator=(const DeviceAllocator&) = delete;

  // See cistern::allocate. Requires: bytes > 0.
  [[nodiscard, gnu::always_inline]] void* allocate(std::size_t bytes, StreamIdentity stream) {
    StreamHeap* const heap = stream_heaps_.find_recent(stream);
    if (heap != nullptr)
      if (void* const pointer = take_back(*heap, bytes, stream)) return pointer;
    void* const pointer = allocate_beside_pairs(heap, bytes, stream);
    keep_frame();
    return pointer;
  }
  // The same where a hit suffices; else null, with nothing done.
  [[nodiscard]] void* allocate_at_hand(std::size_t bytes, StreamIdentity stream) {
    StreamHeap* const heap = stream_heaps_.find_recent(stream);
    if (heap != nullptr)
      if (void* const pointer = take_back(*heap, bytes, stream)) return pointer;
    return allocate_beside_pairs(heap, bytes, stream, true);
  }
  // The same from a pool, whatever is recorded.
  [[nodiscard]] void* allocate_in(PoolId id, std::size_t bytes, const StreamIdentity& stream);
  // Frees the live block at exactly `address`; false, with nothing changed, if there is none
  // in this heap. `last_use`, if not null, is a stream that used the block too.
  [[nodiscard]] bool free(std::uint64_t address, const StreamUse* last_use) noexcept;
  // Adds a stream to the users of the live block at exactly `address`, which takes `use`; false, with `use` as it
  // was, if there is none.
  bool record_use(std::uint64_t address, StreamUse& use);
  using StreamHits::free_of_another;
  using StreamHits::record_use_by_stream;
  // containing_block.cpp: the same for the live block that the byte at `address` belongs to. O(1) at its start, else
  // O(segments and blocks of one); O(blocks) in paged memory.
  bool record_use_around(std::uint64_t address, StreamUse& use);
  // held_blocks.cpp: a block that other processes use stays allocated, and is counted so, until they
  // are done. Holds the live block at exactly `address` once more and returns the bytes that were
  // asked for; nothing if there is none, or if it was freed.
  [[nodiscard]] std::optional<std::size_t> hold(std::uint64_t address);
  // Ends one hold; with the last, a block that was freed meanwhile is freed now. Requires: it is held.
  void let_go(std::uint64_t address) noexcept;

  // See cistern::release_stream.
  void end_stream(const StreamUse& stream) noexcept;

  // In two steps, of which only the first may fail, so that all devices change or none.
  // Requires: valid options. Throws std::bad_alloc.
  [[nodiscard]] HistoryRing prepare_history(const HistoryOptions& options) const;
  void record_history(HistoryOptions&& options, HistoryRing&& ring) noexcept;
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
  [[nodiscard]] std::shared_ptr<const PoolCheckpoint::State> checkpoint_pool(PoolId id);
  PoolRestored restore_pool(const PoolCheckpoint::State& checkpoint);
  // A MemPool's pool, with one use, which end_pool takes away. `parent`: (0, 0) is none.
  void add_pool(PoolId id, PrivatePoolSettings settings, PoolId parent);
  void end_pool(PoolId id) noexcept;
  // A MemPoolGuard's begin and end, each with one use. Returns the guard's number.
  [[nodiscard]] std::uint64_t enter_pool(PoolId id);
  void leave_pool(PoolId id, std::uint64_t guard) noexcept;
  std::size_t trim_pool(PoolId id);

  void empty_cache();
  std::size_t trim(std::size_t target_bytes);
  // Asks the driver for what the options need. Throws DriverError. Before set_options, with the same
  // options.
  void prepare(const AllocatorOptions& options);
  void set_options(AllocatorOptions&& options) noexcept;
  // The device may use the memory of expandable segments, of those that come too. Throws DriverError.
  void allow_peer(CUdevice peer);
  void set_memory_fraction(double fraction);
  // budgets.cpp. Throws std::bad_alloc, unchanged; removing what is not there is nothing.
  void add_budget(std::shared_ptr<const BudgetLimits> limits);
  void remove_budget(const BudgetLimits* limits) noexcept;

 private:
  // device_allocator.cpp: hits, and frees on the block's own stream, with the heap's lock.
  [[nodiscard, gnu::noinline]] void* allocate_by_heap(std::size_t bytes, StreamIdentity stream) override;
  [[gnu::noinline]] bool free_by_heap(std::uint64_t address) noexcept override;
  // From what pools_of() says, under the lock.
  template <class PoolsOf>
  [[nodiscard]] void* allocate_from(std::size_t bytes, const StreamIdentity& stream, PoolsOf&& pools_of);
  [[nodiscard]] void* serve(Request& request, const StreamIdentity& stream, Lock& lock);
  [[nodiscard]] Request make_request(std::size_t bytes) const;
  [[nodiscard]] Block* provide(Block* found, Request& request, Lock& lock);
  void poll_pending(Lock& lock) {
    if (unrecorded_frees_ != nullptr || !pending_.empty()) complete_pending(lock);
  }
  void complete_pending(Lock& lock);
  // Of those that pending frees had, to who has need of one by itself.
  void lend_idle_event(AwaitedFrees& awaited) noexcept {
    if (awaited.promised() == 0 || awaited.has_idle_event()) return;
    if (CUevent event = pending_.take_idle_event(device_); event != nullptr)
      awaited.keep_idle_event(event, surroundings_.event_pools.of(device_));
  }
  // Whether a free block of it does: `direct` and `async` give back what is in no private pool.
  [[nodiscard]] static bool stays_cached(const Segment& segment) noexcept {
    return segment.is_plain || segment.is_paged() || segment.range != nullptr || segment.owner->home != nullptr;
  }
  void free_unawaited(Block* block, Lock& lock) noexcept;
  void free_in_pool(Block* block, Lock& lock) noexcept;

  // pool_recording.cpp: what is recorded, and which pool serves.
  [[nodiscard]] StreamPools& route(const StreamIdentity& stream);

  // pool_leftovers.cpp: what pools without a use leave.
  [[nodiscard]] Block* take_from_overflow(const Request& request);
  void release_leftovers(Lock& lock) noexcept;
  void release_leftovers_of(PoolId id, Lock& lock) noexcept;
  template <class Pools>
  void release_leftovers_of(Lock& lock, Pools&& pools) noexcept;
  void move_leftovers(PrivatePool& pool, SegmentList& chosen);
  void release_segments_and_ranges(SegmentList chosen, Lock& lock);
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
  void forget_ended_streams() noexcept;
  [[nodiscard]] bool left_bytes(const StreamHeap& heap) const noexcept;
  [[nodiscard]] bool is_work_over(const StreamEnd& end) const noexcept;
  void join_idle_bytes() noexcept;
  [[nodiscard]] bool inherit_idle_bytes(StreamNumber heir, Sectors least) noexcept;
  [[nodiscard]] Block* take_over_segment(const Request& request, Lock& lock);
  [[nodiscard]] bool order_behind(const std::shared_ptr<StreamEnd>& end, const Request& request, Lock& lock) noexcept;

  // paged_blocks.cpp: blocks in paged memory.
  [[nodiscard]] bool is_paged(const Request& request) const {
    return paged_ != nullptr && options_.policy == Policy::paged && request.pools->home == nullptr;
  }
  // Null: the driver has no addresses for it, and segments are to serve it.
  [[nodiscard]] Block* serve_paged(Request& request, Lock& lock);
  enum class Growth {
    unasked,  // only if nobody wants to be asked before memory is created
    allowed,
    left,  // what the driver had left when it refused more
  };
  [[nodiscard]] Block* take_known_place(const Request& request, const Lock& lock);
  // What the driver refused a request so far.
  struct Refusals {
    std::int64_t pages_left = 0;  // that it had when it refused more
    bool has_no_addresses = false;
  };
  [[nodiscard]] std::optional<PagedBlock> find_place(const Request& request, Refusals& refusals, Lock& lock);
  [[nodiscard]] std::optional<PagedBlock> try_place(const Request& request, Growth growth, Refusals& refusals,
                                                    Lock& lock);
  // What a plan takes of the driver beside the heap's lock.
  struct PlanOrder {
    StreamUse owner;  // whose work so far the request's stream is to wait for
    StreamHeap* heap = nullptr;
    std::shared_ptr<StreamEnd> end;  // may be null where nothing is to be waited for, and of a stream that is over
    StreamNumber number = 0;
    bool is_done = false;  // nothing is to be waited for any more
    // Where `end` is to be recorded: all that the owner had queued when that was decided.
    PagePlacement::Mark mark = PagePlacement::kNoMark;
    std::shared_ptr<StreamEnd> last_use = nullptr;  // of the bytes; null: it is not known better than by `end`
    PagePlacement::Mark last_mark = PagePlacement::kNoMark;
    bool is_held_up = false;  // the request's stream waits
  };
  // What other streams' bytes are had behind.
  enum class Behind {
    done,    // work that is over
    queued,  // all that they have queued: the device waits for it
  };
  [[nodiscard]] DevicePages::Outcome carry_out(const PagePlan& plan, std::vector<PlanOrder>& orders,
                                               const Request& request, Behind behind, Lock& lock) noexcept;
  [[nodiscard]] PagedBlock commit(PagePlan& plan, const Lock& lock) noexcept;
  [[nodiscard]] StreamNumber paged_stream(StreamHeap& heap);
  void make_room_for_paged(StreamHeap& heap);
  void set_page_limit(Growth growth, std::int64_t pages_left) noexcept;

  // paged_orders.cpp: bytes of other streams.
  [[nodiscard]] bool may_take_others(StreamNumber stream, Growth growth) const noexcept;
  [[nodiscard]] bool takes_others_instead(StreamNumber stream) const noexcept;
  [[nodiscard]] std::int64_t little_pages() const noexcept;
  void consider_parting(const PagePlan& plan) noexcept;
  [[nodiscard]] std::vector<PlanOrder> orders_of(const PagePlan& plan);
  [[nodiscard]] CUresult order_behind(const PagePlan& plan, std::vector<PlanOrder>& orders, const StreamUse& user,
                                      bool during_capture, Behind behind, Lock& lock) noexcept;
  [[nodiscard]] bool is_at_rest(StreamNumber owner) const noexcept;
  void set_marks(std::vector<PlanOrder>& orders) noexcept;
  [[nodiscard]] static bool are_done(const std::vector<PlanOrder>& orders) noexcept;
  [[nodiscard]] CUresult record_ends(std::vector<PlanOrder>& orders, bool during_capture) noexcept;
  [[nodiscard]] CUresult order_behind(PlanOrder& order, const StreamUse& user, Behind behind) const noexcept;
  void find_last_uses(const PagePlan& plan, std::vector<PlanOrder>& orders) const noexcept;
  void find_last_use(PagePlacement::Mark last, PlanOrder& order) const noexcept;
  void keep_marks(const std::vector<PlanOrder>& orders) noexcept;
  void note_hand_overs(const PagePlan& plan, const std::vector<PlanOrder>& orders, bool is_held_up) noexcept;

  // paged_claims.cpp: pending frees.
  struct Claim;
  [[nodiscard]] bool may_claim(const PageRequest& wanted) const noexcept;
  [[nodiscard]] std::vector<Block*> claimable_frees() const;
  void claim_known_place(const Request& request, const PageRequest& wanted, Lock& lock);
  [[nodiscard]] bool claim_for(const PagePlan& plan, const Request& request, Lock& lock);
  [[nodiscard]] static std::vector<KnownPlaces::Number> places_of(const std::vector<Block*>& blocks);
  static void keep_blocks_at(std::vector<Block*>& blocks, const std::vector<KnownPlaces::Number>& places);
  void find_last_uses(Claim& claim) noexcept;
  [[nodiscard]] bool claim(std::vector<Block*> blocks, const Request& request, StreamNumber stream, Lock& lock);
  [[nodiscard]] CUresult order_behind(Claim& claim, const StreamUse& user, bool during_capture) noexcept;
  void finish(Claim& claim, bool is_ordered, const Lock& lock) noexcept;

  // paged_release.cpp
  std::size_t release_paged(std::size_t most, Lock& lock);
  [[nodiscard]] std::vector<PlanOrder> orders_of(const Departure& departure) const;
  std::size_t send_back(Departure& departure, std::vector<PlanOrder>& orders, DevicePages::Outcome& outcome,
                        Lock& lock) noexcept;
  [[nodiscard]] DevicePages::Outcome carry_out(Departure& departure, std::vector<PlanOrder>& orders,
                                               bool during_capture) noexcept;
  [[nodiscard]] std::size_t take_out(const Departure& departure, const Lock& lock) noexcept;
  void free_empty_arenas(Lock& lock) noexcept;
  void drop_idle_paged_streams(bool (*chosen)(const StreamHeap&)) noexcept;

  // paged_retirement.cpp
  void retire_mappings(Lock& lock) noexcept;
  void begin_retirement(Lock& lock) noexcept;
  // paged_work.cpp: what streams had queued at some time.
  struct PagedWork {
    std::vector<PlanOrder> orders;
    PagedMemory::Work ends;
  };
  [[nodiscard]] PagedWork work_of_paged_streams() const;
  bool record(PagedWork& work, Lock& lock) noexcept;
  [[nodiscard]] bool is_work_over(PagedMemory::Work& awaited) const noexcept;

  // paged_decay.cpp
  void decay_paged(Lock& lock) noexcept;
  [[nodiscard]] bool may_decay() const noexcept;
  void begin_decay(std::int64_t now, Lock& lock);
  void end_decay(std::int64_t now, Lock& lock);

  // miss.cpp: the ladder.
  [[nodiscard]] Block* serve_miss(const Request& request, Lock& lock);
  [[nodiscard]] bool call_free_memory_callbacks(const Request& request, Lock& lock);

  // range_growth.cpp
  [[nodiscard]] Block* grow(const Request& request, Climb& climb, Lock& lock);
  void provide_for_growth(const Request& request, Climb& climb);
  [[nodiscard]] std::optional<AddressRange::Room> find_room(const Request& request) const;
  [[nodiscard]] bool add_range(const Request& request, Lock& lock);
  void make_pages_known(AddressRange& range, std::uint64_t end);
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

  // The other rungs, each in the file of its name.
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
  [[nodiscard]] std::optional<MemoryInfo> memory_beside_heap(Lock& lock) const noexcept;
  [[nodiscard]] std::optional<UnusableBlock> find_unusable(const Request& request) const;
  [[nodiscard]] const Block* found_late(const Request& request) const;
  [[nodiscard]] OutOfMemoryReport make_report(const Request& request, const std::optional<MemoryInfo>& memory) const;

  // heap_options.cpp
  void apply_fraction(double fraction);
};

}  // namespace cistern
