#pragma once

// StreamHits: hits, and frees, also of blocks that other streams of the device used, with the lock of their stream
// alone, and of those that have frees that wait; and the streams' part of taking the heap's lock (HeapMutex).
//
// Each of the four walks of a hit and a free is one piece of code (flatten): left to the compiler, what it calls comes
// to be called as soon as it has another caller anywhere. What is rare stays out of it (noinline).
//
// They say no where anything else is to be done: then nothing has changed, and the walk with the heap's lock
// does it (device_allocator.cpp), unless room below the peaks was all that lacked, and others have some
// (stream_counts.cpp).
// Thread safety: any public member may be called from any thread.

#include "allocator/pair_hits.h"

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace cistern {

// Standard error says that the address, which somebody freed, is not that of a live block.
void say_nothing_was_freed(std::uint64_t address) noexcept;

class StreamHits : public PairHits {
 public:
  // Frees the block at `address`, whose page shows that stream, and which let_stand did not free: with the lock of the
  // block's stream where that suffices, else with the heap's. False: no live block begins there. Ends with a call: for
  // that nothing is saved.
  [[nodiscard, gnu::always_inline]] bool free_beside_pairs(StreamHeap& of_page, std::uint64_t address) noexcept {
    // First what does not change with each request, as in let_stand.
    if (of_page.allocates.load(std::memory_order_relaxed) == ThreadMark::if_known()) {
      if (of_page.recurrence.is_followed()) return free_by_steps(of_page, address);
      if (of_page.standing_use.is_used()) return free_again(of_page, address);
    }
    return free_beside_steps(of_page, address);
  }
  // What is live at exactly `address`, likewise.
  struct LiveBlock {
    std::size_t requested = 0;
    std::uint64_t stream = 0;  // the id of its own
    int device = 0;
  };
  [[nodiscard]] std::optional<LiveBlock> look_at(std::uint64_t address) noexcept;

 protected:
  StreamHits(const HeapSurroundings& surroundings, int device, const AllocatorOptions& options)
      : PairHits(*this, surroundings, device, options) {}
  virtual ~StreamHits() = default;

  // A request: with the stream's lock where that suffices, else with the heap's, or, `at_hand`, not at all: null.
  // `heap`: the stream's, if it is known, for which take_back did nothing. Ends with a call: for that nothing is saved.
  [[nodiscard, gnu::always_inline]] void* allocate_beside_pairs(StreamHeap* heap, std::size_t bytes,
                                                                StreamIdentity stream, bool at_hand = false) {
    if (heap != nullptr && follows_requests(*heap)) return allocate_by_steps(*heap, bytes, stream, at_hand);
    return heap != nullptr && heap->standing_use.has_event() ? take_again(*heap, bytes, stream, at_hand)
                                                             : allocate_beside_steps(heap, bytes, stream, at_hand);
  }
  // The walks with the heap's lock. Not among the calls of a walk without it, which are one piece of code.
  [[nodiscard]] virtual void* allocate_by_heap(std::size_t bytes, StreamIdentity stream) = 0;
  [[nodiscard]] virtual bool free_by_heap(std::uint64_t address) noexcept = 0;

  // False: not without the heap's lock. Throws std::bad_alloc, unchanged.
  [[nodiscard]] bool record_use_by_stream(std::uint64_t address, StreamUse& use);
  // A free by a thread that does not allocate from the block's stream, all of which it does itself. False: it does, or
  // no block begins there.
  [[nodiscard]] bool free_of_another(std::uint64_t address) noexcept;
  // Whether the stream shares its ledger from now on: by a request that took the heap's lock. O(streams awake); where
  // many come together, times these.
  void consider_sharing(StreamHeap& heap) noexcept;
  // This thread allocates from the stream. Requires: the stream's lock, or the heap's.
  void note_thread(StreamHeap& heap) noexcept {
    const ThreadMark* const self = ThreadMark::of_this_thread();
    if (heap.allocates.load(std::memory_order_relaxed) == self) return;
    heap.allocates.store(self, std::memory_order_relaxed);
    // Threads that take turns on a stream change this line once.
    if (!leaving_is_due_.load(std::memory_order_relaxed)) leaving_is_due_.store(true, std::memory_order_relaxed);
  }

 private:
  friend class HeapMutex;
  // Steps that are followed, and if it is another one what is beside them.
  [[nodiscard, gnu::noinline]] void* allocate_by_steps(StreamHeap& heap, std::size_t bytes, StreamIdentity stream,
                                                       bool at_hand);
  [[nodiscard, gnu::noinline]] bool free_by_steps(StreamHeap& of_page, std::uint64_t address) noexcept;
  [[nodiscard, gnu::noinline]] void* allocate_beside_steps(StreamHeap* heap, std::size_t bytes, StreamIdentity stream,
                                                           bool at_hand);
  [[nodiscard, gnu::noinline]] bool free_beside_steps(StreamHeap& of_page, std::uint64_t address) noexcept;
  [[nodiscard, gnu::noinline]] bool free_of_guest(StreamHeap& heap, std::uint64_t address) noexcept;
  [[nodiscard]] void* allocate_by_stream(StreamHeap& heap, std::size_t bytes, const StreamIdentity& stream) noexcept;
  [[nodiscard]] bool free_by_stream(StreamHeap& heap, std::uint64_t address, bool may_hand_back = true) noexcept;
  [[nodiscard, gnu::noinline]] bool free_where_guest_was(StreamHeap& of_guest, StreamHeap& of_page,
                                                         std::uint64_t address) noexcept;
  // The same once more, where a stream lacked room for it that others gave.
  [[nodiscard, gnu::noinline]] void* allocate_with_room(StreamHeap& heap, std::size_t bytes,
                                                        const StreamIdentity& stream) noexcept;
  [[nodiscard, gnu::noinline]] bool free_with_room(StreamHeap& heap, std::uint64_t address) noexcept;
  [[nodiscard]] bool may_serve(const StreamHeap& heap) const noexcept;
  [[nodiscard]] bool may_serve(const StreamHeap& heap, const StreamIdentity& stream) const noexcept;
  // Whether a private pool may take the calling thread's request for the stream. Requires: the lock of one that is
  // awake.
  [[nodiscard]] bool is_recorded(const StreamIdentity& stream) const noexcept {
    return is_recording_ && routing_.may_take(stream);
  }
  // The first tag of all is for who has the heap's lock.
  [[nodiscard]] bool knows_tag() const noexcept { return current_tag() == kUntagged || recorder_.keeps_tags(); }
  [[nodiscard]] std::optional<LiveBlock> look_by_stream(std::uint64_t address) noexcept;
  [[nodiscard]] bool can_serve_by_stream() const noexcept;
  template <class Trace>
  [[nodiscard]] void* take_standing_or_hit(StreamHeap& heap, std::size_t bytes, Trace&& trace) noexcept;
  [[nodiscard]] void* take_hit(StreamHeap& heap, std::size_t bytes) noexcept;
  template <bool kIsPlain>
  [[nodiscard]] void* take_from_pool(StreamHeap& heap, std::size_t bytes) noexcept;
  [[nodiscard, gnu::noinline]] void* pick_from_pool(StreamHeap& heap, std::size_t bytes) noexcept;
  // Whether each hit and each free is seen when it happens. Requires: the heap's lock.
  void consider_what_is_seen() noexcept;
  [[nodiscard]] bool free_hit(StreamHeap& heap, std::uint64_t address) noexcept;
  template <bool kIsSeen>
  [[nodiscard]] bool free_found(StreamHeap& heap, const BlockMap::Place& place) noexcept;
  [[nodiscard, gnu::noinline]] bool free_seen(StreamHeap& heap, const BlockMap::Place& place) noexcept;
  [[nodiscard]] bool find_part(StreamHeap& heap, std::int64_t bytes, TagShare::Part** part) noexcept;
  static void count_by_tag(Block& block, TagShare::Part& part) noexcept;
  // paged_hits.cpp
  [[nodiscard, gnu::noinline]] void* take_paged_hit(StreamHeap& heap, std::size_t bytes, bool only_known) noexcept;
  template <class Take>
  [[nodiscard]] Block* take_pages(StreamHeap& heap, Sectors place, Sectors sectors, std::size_t requested,
                                  Take&& take) noexcept;
  // The log's entry; none: it knows no place for the request in this state.
  [[nodiscard]] PlacementLog::Number find_known(const StreamHeap& heap, std::size_t bytes) const noexcept;
  // Null, with nothing changed: not without the heap's lock. At a place that the log knows; in the stream's free bytes;
  // and where a step was that came again, whether or not the log says so.
  [[nodiscard]] Block* take_known(StreamHeap& heap, PlacementLog::Number known, std::size_t bytes) noexcept;
  [[nodiscard]] Block* fit_paged_block(StreamHeap& heap, std::size_t bytes) noexcept;
  [[nodiscard]] Block* take_paged_step(StreamHeap& heap, const StreamStep& step) noexcept;
  [[nodiscard]] bool may_stand_in_pages(StreamHeap& heap) const noexcept;
  // Held while a stream's walk looks at what all streams have in pages. What the stream left is there then. Requires:
  // the stream's lock.
  [[nodiscard]] std::unique_lock<BiasedMutex> turn_in_pages(StreamHeap& heap) noexcept {
    if (one_stream_serves_) {
      assert(heap.left_frees.empty());
      return {};
    }
    std::unique_lock turn(paged_mutex_);
    carry_out_frees(heap);
    return turn;
  }
  // Which streams leave frees to their next turn. Requires: the heap's lock. O(streams awake squared), and O(1) where
  // the same threads allocate from the same streams.
  void consider_leaving() noexcept;
  // A free that was counted and told, with the stream's next turn at the latest; and those that were left for it.
  void free_in_turn(StreamHeap& heap, Block* block) noexcept;
  void carry_out_frees(StreamHeap& heap) noexcept {
    if (!heap.left_frees.empty()) heap.left_frees.take([&](Block* block) { put_free_paged(block, heap.spares); });
  }
  [[nodiscard]] bool is_look_due(StreamHeap& heap) const noexcept;
  [[nodiscard, gnu::noinline]] bool free_paged_hit(StreamHeap& heap, const BlockMap::Place& place) noexcept;
  struct Amounts {
    PoolKind kind;
    std::int64_t bytes;
    std::int64_t requested;
  };
  [[nodiscard]] static Amounts amounts_of(const Block& block) noexcept {
    return {block.kind, as_signed(block.bytes), as_signed(block.requested)};
  }
  // False, with nothing changed: a peak may have moved.
  [[nodiscard]] bool count_allocation(StreamHeap& heap, const Amounts& of, const InactiveSplitChange& change) noexcept;
  [[nodiscard]] bool count_free(StreamHeap& heap, const Amounts& of, const InactiveSplitChange& change) noexcept;
  [[nodiscard]] bool count_free(StreamHeap& heap, const Block& block, const InactiveSplitChange& change) noexcept {
    return count_free(heap, amounts_of(block), change);
  }
  [[nodiscard]] static bool count_allocation_in(BlockLedger& ledger, const Amounts& of,
                                                const InactiveSplitChange& change) noexcept;
  [[nodiscard]] static bool count_free_in(BlockLedger& ledger, const Amounts& of,
                                          const InactiveSplitChange& change) noexcept;
  // Whether the room below the peaks goes from stream to stream while they go on (share_room). In paged memory who
  // needs room has the heap's lock, and finds what streams left for their next turns: where memory goes is to depend on
  // that.
  [[nodiscard]] bool room_moves() const noexcept { return !one_stream_serves_ && !serves_paged_; }
  // False: this thread's walk finds too little room there, and others may have some.
  [[gnu::noinline, gnu::cold]] bool note_lack(StreamHeap& heap) const noexcept;
  // Whether it did, and where, once: null, it did not.
  [[nodiscard]] static bool lacks_room(const StreamHeap& heap) noexcept;
  [[nodiscard]] static const StreamHeap* take_lack() noexcept;
  // Null, with nothing changed: not without the heap's lock. `is_counted`: it was before. `kIsPlain`: picks_plainly_.
  template <bool kIsPlain>
  [[nodiscard]] Block* take_block(StreamHeap& heap, std::size_t bytes, InactiveSplitChange& change,
                                  bool is_counted = false) noexcept;
  [[nodiscard]] void* handed_out(StreamHeap& heap, std::uint64_t address, std::size_t bytes, std::size_t requested,
                                 TagId tag = kUntagged) noexcept;
  void tell_free(StreamHeap& heap, const Block& block) noexcept;
  [[nodiscard]] bool settle_by_stream(StreamHeap& heap) noexcept;
  [[nodiscard, gnu::noinline]] bool carry_out(StreamHeap& heap) noexcept;
  static constexpr auto kAllocated = static_cast<std::uint64_t>(TraceAction::alloc);
  static constexpr auto kRequested = static_cast<std::uint64_t>(TraceAction::free_requested);
  // `kAction`: alloc, one of a free, or kFreed.
  template <std::uint64_t kAction>
  void trace_by_stream(StreamHeap& heap, std::uint64_t address, std::size_t requested, TagId tag = kUntagged) noexcept;
  template <std::uint64_t kAction>
  void write_by_stream(StreamHeap& heap, std::uint64_t address, std::size_t requested, TagId tag = kUntagged) noexcept;
  template <std::uint64_t kAction>
  void write_by_stream_at(StreamHeap& heap, std::uint64_t address, std::size_t requested, std::uint64_t ticks,
                          TagId tag = kUntagged) noexcept;
  void write_staged_alone(StreamHeap& heap) noexcept;
  void write_staged(StreamHeap& heap) noexcept;
  // The same by who has the heap's lock. Requires: no stream's steps are followed.
  // `lets_go`: what is kept of no more than it may need again goes.
  void settle(StreamHeap& heap, bool lets_go) noexcept {
    carry_out_frees(heap);
    if (heap.lazy_free.block() != nullptr) settle_lazy_free(heap);
    if (!heap.stage.events().empty()) write_staged(heap);
    const bool is_awake = heap.is_awake.load(std::memory_order_relaxed);
    if (heap.standing_use.is_kept() && (lets_go || !is_awake)) forget_standing_use(heap);
    if (heap.returned.first() == 0 && spares_for_others(heap) == 0 && (is_awake || heap.recurrence.room() == 0)) return;
    // More than what the stream was told happens, or what it needs goes.
    heap.recurrence.cut();
    free_returned(heap);
    heap.spares.move_to(arena_.spares(), spares_for_others(heap));
    if (!is_awake) static_cast<void>(take_back_room(heap));
  }
  // What a stream had in use it will use again: others get of it where there would have to be more blocks, or when it
  // has gone to sleep.
  [[nodiscard]] std::size_t spares_for_others(const StreamHeap& heap) const noexcept {
    const std::size_t spares = heap.spares.size();
    if (!heap.is_awake.load(std::memory_order_relaxed)) return spares;
    return arena_.spares().size() < kFewSpares && spares > 4 * kFewSpares ? spares / 2 : 0;
  }
  static constexpr std::size_t kFewSpares = 64;
  // An age begins when the block is freed, and not when its stream's thread comes by.
  [[nodiscard]] bool hands_back() const noexcept {
    return hands_back_ && !ages_segments_.load(std::memory_order_relaxed);
  }
  [[nodiscard, gnu::noinline]] bool hand_back(StreamHeap& heap, std::uint64_t address) noexcept;
  [[nodiscard, gnu::noinline]] bool take_returned(StreamHeap& heap) noexcept;
  // By who only looks: with what the stream has, which it needs again where its steps come again.
  void settle_to_look(StreamHeap& heap) noexcept {
    const bool is_settled =
        may_serve(heap) && (heap.returned.first() == 0 || take_returned(heap)) && settle_by_stream(heap);
    if (!is_settled) heap.recurrence.cut();
  }
  void free_returned(StreamHeap& heap) noexcept;
  [[nodiscard]] static bool is_free_at_once(const Block* block) noexcept {
    return block != nullptr && !block->oversize && !block->has_uses && !block->is_held && block->stack == kNoStackId;
  }
  void settle_lazy_free(StreamHeap& heap) noexcept;

  // stream_counts.cpp: streams that share a ledger, and steps that are followed beside other streams.
  template <bool kComes>
  [[nodiscard]] bool count_shared(StreamHeap& heap, const Amounts& of, const InactiveSplitChange& change) noexcept;
  [[nodiscard, gnu::noinline]] bool count_shared_allocation(StreamHeap& heap, const Amounts& of,
                                                            const InactiveSplitChange& change) noexcept;
  [[nodiscard, gnu::noinline]] bool count_shared_free(StreamHeap& heap, const Amounts& of,
                                                      const InactiveSplitChange& change) noexcept;
  [[nodiscard, gnu::noinline]] bool count_step(StreamHeap& heap, const StreamStep& step) noexcept;
  [[nodiscard]] bool share_room(StreamHeap& lacks) noexcept;
  [[nodiscard]] static bool is_scarce(const StreamHeap& heap) noexcept;
  void begin_sharing(StreamHeap& heap) noexcept;
  void end_sharing() noexcept;
  [[gnu::noinline]] void take_allocation_back(StreamHeap& heap, const Amounts& of) noexcept;

  // stream_steps.cpp: steps that come again (Recurrence). Null and false, with nothing changed but frees that were
  // expected: it is not the step that is expected.
  [[nodiscard]] bool follows_requests(const StreamHeap& heap) const noexcept {
    return heap.recurrence.is_followed() && awake_.awaiting() == 0;
  }
  [[nodiscard]] static bool follows_frees(const StreamHeap& heap) noexcept {
    return heap.recurrence.is_followed() && heap.allocates.load(std::memory_order_relaxed) == ThreadMark::if_known();
  }
  [[nodiscard, gnu::noinline]] void* take_next(StreamHeap& heap, std::size_t bytes,
                                               const StreamIdentity& stream) noexcept;
  [[nodiscard, gnu::noinline]] bool free_next(StreamHeap& heap, std::uint64_t address) noexcept;
  [[nodiscard]] void* allocate_as_expected(StreamHeap& heap, std::size_t bytes, const StreamIdentity& stream) noexcept;
  [[nodiscard]] void* follow_request(StreamHeap& heap, std::size_t bytes) noexcept;
  [[nodiscard]] bool free_as_expected(StreamHeap& heap, std::uint64_t address) noexcept;
  // All of these require the stream's lock.
  // `splits_of`: returns the change that came with it, where it is asked for.
  template <StreamStep::Kind kKind, class SplitsOf>
  void note_step(StreamHeap& heap, const Block& block, SplitsOf&& splits_of) noexcept;
  [[gnu::noinline]] void learn_step(StreamHeap& heap, StreamStep::Kind kind, const Block& block,
                                    const InactiveSplitChange& splits) noexcept;
  // A free that stands is a step as soon as something else happens.
  void tell_standing_free(StreamHeap& heap) noexcept;
  [[nodiscard]] bool is_paged_step(const StreamHeap& heap, const Block& block) const noexcept;
  // False, with nothing changed: nothing is followed, or that is not the next step.
  [[nodiscard]] bool follow_free(StreamHeap& heap, std::uint64_t address) noexcept;
  // All that was followed is carried out.
  void stop_following(StreamHeap& heap) noexcept {
    if (!heap.recurrence.is_followed()) return;
    carry_out_steps(heap);
    heap.recurrence.go_on();
  }
  // Something else is about to happen on the stream.
  void forget_steps(StreamHeap& heap) noexcept {
    if (heap.recurrence.is_followed()) carry_out_steps(heap);
    heap.recurrence.cut();
  }
  [[nodiscard]] bool count_next_step(StreamHeap& heap) noexcept;
  [[gnu::noinline]] void carry_out_steps(StreamHeap& heap) noexcept;
  [[gnu::noinline]] void carry_out_step(StreamHeap& heap, const StreamStep& step) noexcept;
  [[nodiscard]] Block* take_step(StreamHeap& heap, const StreamStep& step) noexcept;
  [[gnu::noinline]] void carry_out_use_or_wait(StreamHeap& heap, const StreamStep& step,
                                               const BlockMap::Place& place) noexcept;
  [[gnu::noinline]] void carry_out_done(StreamHeap& heap, const StreamStep& step) noexcept;
  void count_laps(StreamHeap& heap, const StreamStep& step, std::int64_t laps) noexcept;
  // As many as are worth their host memory, of all streams. Requires: the heap's lock.
  [[nodiscard]] std::size_t worthwhile_steps() const noexcept;
  [[nodiscard, gnu::noinline]] Recurrence::Room take_back_room(StreamHeap& heap) noexcept;
  // Takes host memory, and so requires that no lock is held.
  [[gnu::noinline]] void provide_for_steps(StreamHeap& heap) noexcept;

  // The same of blocks that other streams use. False likewise; the first may throw std::bad_alloc, unchanged.
  [[nodiscard]] bool follow_use(StreamHeap& heap, std::uint64_t address, StreamUse& use);
  [[nodiscard, gnu::noinline]] bool await_as_expected(StreamHeap& heap, std::uint64_t address,
                                                      std::unique_lock<BiasedMutex> lock) noexcept;
  [[nodiscard]] bool follow_done(StreamHeap& heap, std::uint64_t address, std::uint64_t* at) noexcept;
  [[nodiscard]] static Block* used_before(const StreamHeap& heap, std::uint64_t address) noexcept;
  void know_blocks(StreamHeap& heap) noexcept;

  // stream_turns.cpp: a block that stands, and that another stream uses in each turn. The first two are the doors,
  // where the look without the lock said that it may be so.
  [[nodiscard, gnu::noinline]] bool free_again(StreamHeap& heap, std::uint64_t address) noexcept;
  [[nodiscard, gnu::noinline]] void* take_again(StreamHeap& heap, std::size_t bytes, StreamIdentity stream,
                                                bool at_hand);
  [[nodiscard, gnu::noinline]] void* allocate_after_asking(StreamHeap& heap, std::size_t bytes,
                                                           const StreamIdentity& stream, bool at_hand);
  [[nodiscard]] bool keep_use(StreamHeap& heap, StreamUse& use);
  // Gives the stream's lock up.
  [[nodiscard, gnu::noinline]] bool await_again(StreamHeap& heap) noexcept;
  [[nodiscard, gnu::noinline]] void* allocate_again(StreamHeap& heap, std::size_t bytes) noexcept;
  [[gnu::noinline]] void trace_turn(StreamHeap& heap, const Block& block) noexcept;
  // That the block is used, or waits, is written down. Requires: the stream's lock.
  void tell_standing_use(StreamHeap& heap) noexcept {
    if (!heap.standing_use.is_told()) [[unlikely]]
      write_standing_use_down(heap);
  }
  [[gnu::noinline]] void write_standing_use_down(StreamHeap& heap) noexcept;
  void give_standing_event_back(StreamHeap& heap) noexcept;
  [[gnu::noinline]] void forget_standing_use(StreamHeap& heap) noexcept;

  // stream_waits.cpp: frees that wait for other streams, with the lock of their own alone.
  // These give the stream's lock up.
  [[nodiscard, gnu::noinline]] bool await_by_stream(StreamHeap& heap, std::uint64_t address,
                                                    std::unique_lock<BiasedMutex> lock) noexcept;
  [[nodiscard]] bool begin_awaiting(StreamHeap& heap, AwaitedFrees::Recording& recording) noexcept;
  std::uint64_t begin_entries(StreamHeap& heap, AwaitedFrees::Recording& recording, std::size_t bytes,
                              std::size_t requested) noexcept;
  struct FreeThatWaits {
    std::uint64_t number;
    std::uint64_t at;  // see Block::freed_at
  };
  [[nodiscard]] FreeThatWaits begin_wait(StreamHeap& heap, std::uint64_t address, std::size_t requested) noexcept;
  void record_events(StreamHeap& heap, AwaitedFrees::Recording& recording,
                     std::unique_lock<BiasedMutex>& lock) noexcept;
  [[nodiscard]] bool bring_event(StreamHeap& heap, AwaitedFrees::Recording& recording, PendingFrees::Entry& recorded,
                                 CUresult result, std::unique_lock<BiasedMutex>& lock,
                                 std::shared_ptr<void>& owner) noexcept;
  [[nodiscard]] bool can_await(const StreamHeap& heap, const Block* block) const noexcept;
  [[nodiscard]] bool can_await(const StreamHeap& heap, const StreamUses& uses) const noexcept;
  void leave_place(StreamHeap& heap, const Block& block) noexcept;
  // Whether frees wait that a request in paged memory may have to claim (paged_claims.cpp), which takes the heap's
  // lock: unless the log knows a place for it, or a block that stands serves it.
  [[nodiscard]] bool waits_in_pages(const StreamHeap& heap) const noexcept {
    return heap.paged_stream >= 0 && claims_ && awake_.awaiting() != 0;
  }
  void end_recording_by_heap(AwaitedFrees::Recording& recording, PendingFrees::Entry& entry, CUresult result) noexcept;
  [[nodiscard, gnu::noinline]] void* allocate_after_waits(StreamHeap& heap, std::size_t bytes) noexcept;
  [[nodiscard]] void* allocate_asked(StreamHeap& heap, std::size_t bytes, std::uint64_t completed_at) noexcept;
  [[nodiscard, gnu::noinline]] void* allocate_among_waits(StreamHeap& heap, std::size_t bytes,
                                                          const StreamIdentity& stream) noexcept;
  template <std::size_t kStreams>
  [[nodiscard]] bool complete_awaited(std::span<StreamHeap* const, kStreams> heaps, std::uint64_t* at) noexcept;
  [[nodiscard]] bool complete_by_stream(StreamHeap& heap, const AwaitedFrees::Entry& entry, std::uint64_t* at) noexcept;
  [[nodiscard]] bool complete_block(StreamHeap& heap, Block& block, std::uint64_t* at) noexcept;
  [[nodiscard]] bool complete_in_pages(StreamHeap& heap, Block& block, std::uint64_t* at) noexcept;
  void end_waiting(StreamHeap& heap, Block& block, std::uint64_t* at) noexcept;
  void trace_completed(StreamHeap& heap, std::uint64_t address, std::size_t requested, std::uint64_t* at) noexcept;
  void hand_over_awaited() noexcept;
};

}  // namespace cistern
