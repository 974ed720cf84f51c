#pragma once

// What the walks of StreamHits have in common, each a piece of every walk that calls it.

#include "allocator/range_search.h"
#include "allocator/stream_hits.h"

#include <cstddef>
#include <cstdint>

namespace cistern {

template <std::uint64_t kAction>
inline void StreamHits::write_by_stream_at(StreamHeap& heap, std::uint64_t address, std::size_t requested,
                                           std::uint64_t ticks, TagId tag) noexcept {
  if (one_stream_serves_) {
    history_.add_own<kAction>(address, as_signed(requested), stream_number(heap.stream), ticks, tag);
    return;
  }
  if (heap.stage.is_full()) write_staged_alone(heap);
  heap.stage.add(DeviceHistory::staged(kAction, address, as_signed(requested), ticks, tag));
}

// Not inline, for what has no history.
template <std::uint64_t kAction>
[[gnu::noinline]] void StreamHits::write_by_stream(StreamHeap& heap, std::uint64_t address, std::size_t requested,
                                                   TagId tag) noexcept {
  write_by_stream_at<kAction>(heap, address, requested, history_.clock().now(), tag);
}

// A stream that serves alone writes to the history itself; else what it does waits for others.
template <std::uint64_t kAction>
inline void StreamHits::trace_by_stream(StreamHeap& heap, std::uint64_t address, std::size_t requested,
                                        TagId tag) noexcept {
  if (history_.is_on()) write_by_stream<kAction>(heap, address, requested, tag);
}

// The block's address, of which all hear who want to.
inline void* StreamHits::handed_out(StreamHeap& heap, std::uint64_t address, std::size_t bytes, std::size_t requested,
                                    TagId tag) noexcept {
  note_thread(heap);
  // On a line that other threads' frees read, as what is noted before.
  if (!heap.has_served_alone) heap.has_served_alone = true;
  trace_by_stream<kAllocated>(heap, address, requested, tag);
  api_.note_allocate(address, bytes, heap.stream.handle);
  return reinterpret_cast<void*>(address);
}

// Before the block can serve another request.
inline void StreamHits::tell_free(StreamHeap& heap, const Block& block) noexcept {
  api_.note_free(block.address, block.bytes, heap.stream.handle);
  trace_by_stream<kFreed>(heap, block.address, block.requested, block.tag);
}

// Null: not without the heap's lock. trace(block): the history hears of it, where a free that stood is taken back.
template <class Trace>
inline void* StreamHits::take_standing_or_hit(StreamHeap& heap, std::size_t bytes, Trace&& trace) noexcept {
  stop_following(heap);
  if (heap.returned.first() == 0) [[likely]] {
    LazyFree& lazy = heap.lazy_free;
    if (lazy.serves(bytes)) {
      lazy.come_back();
      Block* const block = lazy.block();
      trace(*block);
      api_.note_allocate(block->address, block->bytes, heap.stream.handle);
      if (lazy.tell()) [[unlikely]]
        note_step<StreamStep::Kind::allocation>(heap, *block, [&] { return lazy.change(); });
      return reinterpret_cast<void*>(block->address);
    }
  } else if (!take_returned(heap)) {
    return nullptr;
  }
  return take_hit(heap, bytes);
}

// The free of a block that others used. Returns what is to be known of it.
inline StreamHits::FreeThatWaits StreamHits::begin_wait(StreamHeap& heap, std::uint64_t address,
                                                        std::size_t requested) noexcept {
  const std::uint64_t now = history_.clock().now();
  if (history_.is_on()) write_by_stream_at<kRequested>(heap, address, requested, now);
  awake_.begin_awaiting(heap.awake_bit.load(std::memory_order_relaxed), one_stream_serves_);
  return {awake_.next_number(one_stream_serves_), now};
}

// Whether the step is one of those that depend on the blocks of this stream alone, and not on a clock. Where streams
// use each other's blocks they have each other's bytes, too, at places that are known by what all of them have: that is
// hidden while steps are followed.
inline bool StreamHits::is_paged_step(const StreamHeap& heap, const Block& block) const noexcept {
  return !decays_ && !heap.lacks_addresses && block.segment->is_paged();
}

template <StreamStep::Kind kKind, class SplitsOf>
inline void StreamHits::note_step(StreamHeap& heap, const Block& block, SplitsOf&& splits_of) noexcept {
  if (heap.recurrence.passes_over() || (heap.ledger.shares && serves_paged_)) return;
  const bool may_hide = !StreamStep::is_of_use(kKind) || one_stream_serves_;
  if (heap.paged_stream >= 0 && (!is_paged_step(heap, block) || !may_hide)) [[unlikely]]
    return heap.recurrence.cut();
  if (heap.recurrence.learns()) [[unlikely]]
    learn_step(heap, kKind, block, splits_of());
  else
    heap.recurrence.note(kKind, block.address, block.requested);
}

inline void StreamHits::tell_standing_free(StreamHeap& heap) noexcept {
  if (LazyFree& lazy = heap.lazy_free; !lazy.tell())
    note_step<StreamStep::Kind::free>(heap, *lazy.block(), [&] { return lazy.change_by_freeing(); });
}

inline bool StreamHits::follow_free(StreamHeap& heap, std::uint64_t address) noexcept {
  if (!heap.recurrence.is_followed() || !heap.recurrence.expects(StreamStep::Kind::free, address) ||
      !count_next_step(heap))
    return false;
  const StreamStep& step = heap.recurrence.follow_next();
  api_.note_free(address, step.bytes(), heap.stream.handle);
  trace_by_stream<kFreed>(heap, address, step.requested());
  return true;
}

// Requires: the stream's lock is held. The rest of the heap is read only if it is awake: else its owner
// may be changing it.
inline bool StreamHits::may_serve(const StreamHeap& heap) const noexcept {
  return heap.is_awake.load(std::memory_order_relaxed) && serves_by_stream_;
}

// The same for a request of the calling thread for that stream, which may have become another's.
inline bool StreamHits::may_serve(const StreamHeap& heap, const StreamIdentity& stream) const noexcept {
  return may_serve(heap) && heap.stream.id == stream.id && knows_tag() && !is_recorded(stream);
}

// Where tags are kept, the part in which a block of so many bytes is counted. False: who has the heap's lock counts it.
inline bool StreamHits::find_part(StreamHeap& heap, std::int64_t bytes, TagShare::Part** part) noexcept {
  if (!recorder_.keeps_tags()) return true;
  *part = recorder_.part_of(heap.ledger, current_tag());
  return *part != nullptr && (*part)->has_room_for(bytes);
}

inline void StreamHits::count_by_tag(Block& block, TagShare::Part& part) noexcept {
  block.tag = current_tag();
  part.count_allocation(as_signed(block.bytes));
}

template <bool kIsPlain>
inline Block* StreamHits::take_block(StreamHeap& heap, std::size_t bytes, InactiveSplitChange& change,
                                     bool is_counted) noexcept {
  const std::size_t rounded = policy_.round(bytes);
  if (policy_.is_oversize(rounded)) [[unlikely]]
    return nullptr;
  const PoolKind kind = policy_.pool(rounded);
  BlockPool& pool = heap.of(kind);
  Block* free = pool.best_fit(rounded);
  if (!kIsPlain && !plain_search_) free = choose_beside_ranges(pool, free, options_.policy == Policy::expandable);
  if (free == nullptr || (heap.has_hidden_segments && !free->segment->is_found_by_page) || !heap.live.has_room() ||
      heap.spares.size() == 0 || !policy_.may_serve(free->bytes, rounded))
    return nullptr;
  heap.live.fetch_place_of(free->address);
  const std::size_t taken = policy_.should_split(free->bytes, rounded, kind) ? rounded : free->bytes;
  if (kIsPlain || counts_splits(*free)) change = change_by_taking(*free, taken);
  TagShare::Part* part = nullptr;
  if (!kIsPlain && !find_part(heap, as_signed(taken), &part)) return nullptr;
  if (!is_counted && !count_allocation(heap, {kind, as_signed(taken), as_signed(bytes)}, change)) return nullptr;
  Block* const block = take_front(free, taken, pool, heap.spares);
  block->state = BlockState::active_allocated;
  block->kind = kind;
  block->requested = bytes;
  block->tag = kUntagged;
  if (!kIsPlain && part != nullptr) count_by_tag(*block, *part);
  block->oversize = false;
  heap.live.insert(block);
  return block;
}

inline bool StreamHits::count_allocation_in(BlockLedger& ledger, const Amounts& of,
                                            const InactiveSplitChange& change) noexcept {
  if (ledger.came(of.kind, of.bytes, of.requested, change)) return true;
  ledger.take_back(of.kind, of.bytes, of.requested, change);
  return false;
}

inline bool StreamHits::count_allocation(StreamHeap& heap, const Amounts& of,
                                         const InactiveSplitChange& change) noexcept {
  if (heap.ledger.shares) [[unlikely]]
    return count_shared_allocation(heap, of, change);
  return count_allocation_in(heap.ledger.blocks, of, change) || note_lack(heap);
}

inline bool StreamHits::count_free_in(BlockLedger& ledger, const Amounts& of,
                                      const InactiveSplitChange& change) noexcept {
  if (ledger.went(of.kind, of.bytes, of.requested, change)) return true;
  ledger.take_back_free(of.kind, of.bytes, of.requested, change);
  return false;
}

inline bool StreamHits::count_free(StreamHeap& heap, const Amounts& of, const InactiveSplitChange& change) noexcept {
  if (heap.ledger.shares) [[unlikely]]
    return count_shared_free(heap, of, change);
  return count_free_in(heap.ledger.blocks, of, change) || note_lack(heap);
}

// Whether the next step may be followed: where the room that it had before may be another stream's by now, it is
// counted first. False: nothing changed, and what is followed stays so.
inline bool StreamHits::count_next_step(StreamHeap& heap) noexcept {
  return !heap.counts_steps || count_step(heap, heap.recurrence.next());
}

// Carries out what the stream left for later. False: that takes the heap's lock.
inline bool StreamHits::settle_by_stream(StreamHeap& heap) noexcept {
  LazyFree& lazy = heap.lazy_free;
  // Without a block neither holds. One jump: one on whether there is a block could not be foreseen.
  if ((static_cast<std::int64_t>(lazy.is_freed()) | lazy.turns()) != 0) [[unlikely]]
    return carry_out(heap);
  lazy.drop();
  return true;
}

}  // namespace cistern
