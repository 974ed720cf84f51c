#include "allocator/stream_walks.h"

#include <cinttypes>
#include <cstdio>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

namespace cistern {
namespace {

// By one request: it may complete as many frees first, of which each needs room.
constexpr int kMostGrants = 64;

}  // namespace

void say_nothing_was_freed(std::uint64_t address) noexcept {
  std::fprintf(stderr, "cistern: deallocate(%#" PRIx64 "): not the address of a live block; nothing was freed\n",
               address);
}

// Null: not without the heap's lock. Requires: it is no step that is followed.
[[gnu::always_inline]] inline void* StreamHits::allocate_by_stream(StreamHeap& heap, std::size_t bytes,
                                                                   const StreamIdentity& stream) noexcept {
  const AwakeStreams::Bits awaiting = awake_.awaiting();
  if (heap.recurrence.is_followed()) {
    if (awaiting == 0 && lacks_room(heap)) return nullptr;  // what is followed stays so
  } else if (heap.recurrence.wants_room()) {
    provide_for_steps(heap);
  }
  if (gathering().includes(HistoryContext::state)) return nullptr;
  history_.provide();
  if ((awaiting & ~(heap.awake_bit.load(std::memory_order_relaxed) | AwakeStreams::kOfHeap)) != 0) [[unlikely]]
    return allocate_among_waits(heap, bytes, stream);
  const std::lock_guard lock(heap.mutex);
  if (!may_serve(heap, stream)) return nullptr;
  if (awaiting != 0) [[unlikely]]
    return heap.standing_use.waits() ? allocate_again(heap, bytes) : allocate_after_waits(heap, bytes);
  return take_standing_or_hit(heap, bytes,
                              [&](const Block& block) { trace_by_stream<kAllocated>(heap, block.address, bytes); });
}

[[gnu::flatten]] void* StreamHits::allocate_beside_steps(StreamHeap* heap, std::size_t bytes, StreamIdentity stream,
                                                         bool at_hand) {
  if (heap == nullptr) {
    heap = stream_heaps_.find(stream);
    if (heap != nullptr) {
      if (void* const pointer = take_back(*heap, bytes, stream)) return pointer;
      if (void* const pointer = take_next(*heap, bytes, stream)) return pointer;
    }
  }
  if (heap != nullptr) {
    if (void* const pointer = allocate_by_stream(*heap, bytes, stream)) [[likely]]
      return pointer;
    if (!at_hand)
      if (void* const pointer = allocate_with_room(*heap, bytes, stream)) return pointer;
  }
  return at_hand ? nullptr : allocate_by_heap(bytes, stream);
}

void* StreamHits::allocate_with_room(StreamHeap& heap, std::size_t bytes, const StreamIdentity& stream) noexcept {
  for (int grants = 0; grants < kMostGrants; ++grants) {
    const StreamHeap* const lacks = take_lack();
    if (lacks == nullptr || !mutex_.grant_room(lacks)) return nullptr;
    if (void* const pointer = take_next(heap, bytes, stream)) return pointer;
    if (void* const pointer = allocate_by_stream(heap, bytes, stream)) return pointer;
  }
  return nullptr;
}

// False: not without the heap's lock. Requires: it is no step that is followed.
[[gnu::always_inline]] inline bool StreamHits::free_by_stream(StreamHeap& heap, std::uint64_t address,
                                                              bool may_hand_back) noexcept {
  const bool is_of_another = heap.allocates.load(std::memory_order_relaxed) != ThreadMark::of_this_thread();
  if (!is_of_another && heap.recurrence.is_followed() && lacks_room(heap)) return false;
  if (gathering().includes(HistoryContext::all)) return false;
  if (is_of_another && may_hand_back && hands_back() && hand_back(heap, address)) return true;
  history_.provide();
  std::unique_lock lock(heap.mutex);
  if (!may_serve(heap)) return false;
  stop_following(heap);
  // No room: with the lock at hand, room for the next ones.
  if (is_of_another && heap.returned.first() != 0 && !take_returned(heap)) return false;
  LazyFree& lazy = heap.lazy_free;
  const bool is_last = lazy.is_of(address);
  if (is_last && lazy.state() == LazyFree::State::in_use) {
    tell_free(heap, *lazy.block());
    const bool is_told = heap.recurrence.learns();
    lazy.go(is_told);
    if (is_told) [[unlikely]]
      note_step<StreamStep::Kind::free>(heap, *lazy.block(), [&] { return lazy.change_by_freeing(); });
    return true;
  }
  const bool is_shared = is_last && lazy.state() == LazyFree::State::shared;
  if (is_shared && heap.standing_use.is_used()) {
    static_cast<void>(lock.release());
    return await_again(heap);
  }
  if (!is_shared && free_hit(heap, address)) return true;
  return await_by_stream(heap, address, std::move(lock));
}

bool StreamHits::free_with_room(StreamHeap& heap, std::uint64_t address) noexcept {
  for (int grants = 0; grants < kMostGrants; ++grants) {
    const StreamHeap* const lacks = take_lack();
    if (lacks == nullptr || !mutex_.grant_room(lacks)) return false;
    if (free_next(heap, address) || free_by_stream(heap, address)) return true;
  }
  return false;
}

[[gnu::flatten]] bool StreamHits::free_beside_steps(StreamHeap& of_page, std::uint64_t address) noexcept {
  const std::optional<const StreamHeap::Guest*> known = stream_heaps_.look_for_guest(address);
  if (!known) return free_by_heap(address);
  if (*known == nullptr) [[likely]]
    return free_by_stream(of_page, address) || free_with_room(of_page, address) || free_by_heap(address);
  const StreamHeap::Guest& guest = **known;
  return guest.is_live ? free_of_guest(*guest.of, address) : free_where_guest_was(*guest.of, of_page, address);
}

bool StreamHits::free_of_another(std::uint64_t address) noexcept {
  StreamHeap* const heap = stream_heaps_.find_by_address(address);
  if (heap == nullptr || heap->allocates.load(std::memory_order_relaxed) == ThreadMark::of_this_thread()) return false;
  return free_by_stream(*heap, address, false) || free_by_heap(address);
}

bool StreamHits::free_of_guest(StreamHeap& heap, std::uint64_t address) noexcept {
  return free_next(heap, address) || free_by_stream(heap, address) || free_by_heap(address);
}

// It is a guest of steps that are followed, or is just none any more, or was never one: in nobody's ring, unless it is
// known whose it is.
bool StreamHits::free_where_guest_was(StreamHeap& of_guest, StreamHeap& of_page, std::uint64_t address) noexcept {
  if (free_next(of_guest, address)) return true;
  const bool may_be_of_page = !of_guest.recurrence.is_followed() && &of_page != &of_guest;
  return (may_be_of_page && free_by_stream(of_page, address, false)) || free_by_heap(address);
}

[[gnu::flatten]] bool StreamHits::record_use_by_stream(std::uint64_t address, StreamUse& use) {
  StreamHeap* const heap = stream_heaps_.find_by_address(address);
  if (heap == nullptr) return false;
  const std::lock_guard lock(heap->mutex);
  if (!may_serve(*heap)) return false;
  if (heap->recurrence.is_followed()) {
    if (follow_use(*heap, address, use)) return true;
    stop_following(*heap);
  }
  LazyFree& lazy = heap->lazy_free;
  const bool is_last = lazy.is_of(address) && !lazy.is_freed();
  if (!is_last && !settle_by_stream(*heap)) return false;
  Block* const block = is_last ? lazy.block() : heap->live.find(address);
  if (block == nullptr) return false;
  if (is_last && heap->standing_use.is_used()) {
    if (heap->standing_use.is_of(use.stream, use.device, use.owner != nullptr)) return true;
    tell_standing_use(*heap);
  }
  const bool had_uses = block->has_uses;
  if (is_last && !had_uses && keep_use(*heap, use)) return true;
  add_use(block, std::move(use));
  if (block->has_uses == had_uses) return true;
  if (is_last) lazy.share();
  note_step<StreamStep::Kind::use>(*heap, *block, [] { return InactiveSplitChange{}; });
  return true;
}

std::optional<StreamHits::LiveBlock> StreamHits::look_at(std::uint64_t address) noexcept {
  if (const std::optional<LiveBlock> found = look_by_stream(address)) return found;
  const HeapLook look(mutex_);
  const Block* const block = find_live(address);
  if (block == nullptr) return std::nullopt;
  return LiveBlock{block->requested, block->segment->stream.id, device_};
}

// Nothing: there is none that the stream knows by itself.
std::optional<StreamHits::LiveBlock> StreamHits::look_by_stream(std::uint64_t address) noexcept {
  StreamHeap* const heap = stream_heaps_.find_by_address(address);
  if (heap == nullptr) return std::nullopt;
  const std::lock_guard lock(heap->mutex);
  if (!may_serve(*heap) || heap->returned.first() != 0) return std::nullopt;
  if (heap->recurrence.is_followed()) {
    if (const StreamStep* const step = heap->recurrence.next_of_live(address))
      return LiveBlock{step->requested(), heap->stream.id, device_};
    stop_following(*heap);
  }
  const LazyFree& lazy = heap->lazy_free;
  if (lazy.is_of(address) && lazy.is_freed()) return std::nullopt;
  const Block* const block = heap->live.find(address);
  if (block == nullptr) return std::nullopt;
  return LiveBlock{block->requested, heap->stream.id, device_};
}

// To the thread that allocates from the stream: it has the lock at hand, and will use the block. False: there is
// no room.
bool StreamHits::hand_back(StreamHeap& heap, std::uint64_t address) noexcept {
  const ReturnedBlocks::Put put = heap.returned.put(address, heap.is_awake);
  if (put == ReturnedBlocks::Put::to_who_sleeps) {
    const Lock lock(mutex_);
    free_returned(heap);
  }
  return put != ReturnedBlocks::Put::refused;
}

// What a request or a free looks at beside its stream, or changes there.
bool StreamHits::can_serve_by_stream() const noexcept {
  return caches_ && unrecorded_frees_ == nullptr && captured_frees_.empty() && budgets_.empty();
}

// An age, and what a tag has at a peak, is exact only if each hit and each free is carried out when it happens. Paged
// memory has no ages, but segments beside it do.
void StreamHits::consider_what_is_seen() noexcept {
  const bool ages = collects_garbage() || searches_.has_any();
  ages_segments_.store(ages, std::memory_order_relaxed);
  sees_each_ = ages || recorder_.keeps_tags();
  const bool follows_steps = !recorder_.keeps_tags() && (!ages || serves_paged_);
  if (std::exchange(follows_steps_, follows_steps) == follows_steps || follows_steps) return;
  for (StreamHeap* heap : mutex_.streams()) static_cast<void>(take_back_room(*heap));
}

// Not inline, as free_hit: what a lazy free serves would save the registers that this takes.
[[gnu::noinline, gnu::flatten]] void* StreamHits::take_hit(StreamHeap& heap, std::size_t bytes) noexcept {
  if (bytes >= kTooLarge || !settle_by_stream(heap)) return nullptr;
  if (heap.paged_stream >= 0) {
    const bool waits = waits_in_pages(heap);
    void* const pointer = take_paged_hit(heap, bytes, waits);
    if (waits) return pointer;
    // Those of segments, and frees that stand, do not look at the clock.
    if (pointer != nullptr || !heap.lacks_addresses || decays_) return pointer;
  }
  return picks_plainly_ ? take_from_pool<true>(heap, bytes) : pick_from_pool(heap, bytes);
}

// Where there are expandable segments, or ages. Not part of the walk that is made most.
[[gnu::flatten]] void* StreamHits::pick_from_pool(StreamHeap& heap, std::size_t bytes) noexcept {
  return take_from_pool<false>(heap, bytes);
}

template <bool kIsPlain>
inline void* StreamHits::take_from_pool(StreamHeap& heap, std::size_t bytes) noexcept {
  InactiveSplitChange change;
  Block* const block = take_block<kIsPlain>(heap, bytes, change);
  if (block == nullptr) return nullptr;
  const bool is_seen = !kIsPlain && sees_each_;
  if (is_seen && collects_garbage()) searches_.count(block->kind, one_stream_serves_);
  if (!is_seen && !heap.ledger.shares) heap.lazy_free.begin(block, change, pairs_are_plain_);
  note_step<StreamStep::Kind::allocation>(heap, *block, [&] { return change; });
  return handed_out(heap, block->address, block->bytes, bytes, kIsPlain ? kUntagged : block->tag);
}

// False, with nothing changed: it takes the heap's lock.
[[gnu::noinline, gnu::flatten]] bool StreamHits::free_hit(StreamHeap& heap, std::uint64_t address) noexcept {
  if (!settle_by_stream(heap)) return false;
  const BlockMap::Place place = heap.live.place_of(address);
  Block* const block = place.block;
  if (!is_free_at_once(block)) return false;
  return sees_each_ ? free_seen(heap, place) : free_found<false>(heap, place);
}

// Where its tag or the age of its segment is kept.
[[gnu::flatten]] bool StreamHits::free_seen(StreamHeap& heap, const BlockMap::Place& place) noexcept {
  TagShare::Part* part = nullptr;
  if (recorder_.keeps_tags()) {
    part = recorder_.part_of(heap.ledger, place.block->tag);
    if (part == nullptr) return false;
  }
  const std::int64_t bytes = as_signed(place.block->bytes);
  if (!free_found<true>(heap, place)) return false;
  if (part != nullptr) part->count_free(bytes);
  return true;
}

template <bool kIsSeen>
inline bool StreamHits::free_found(StreamHeap& heap, const BlockMap::Place& place) noexcept {
  Block* const block = place.block;
  if (heap.paged_stream >= 0 && block->segment->is_paged()) return free_paged_hit(heap, place);
  const FreeNeighbours free(*block);
  if (!count_free(heap, *block, splits_by_freeing(*block, free))) return false;
  tell_free(heap, *block);
  note_step<StreamStep::Kind::free>(heap, *block, [&] { return splits_by_freeing(*block, free); });
  heap.live.erase(place);
  const Block* const settled = put_free(block, free, heap.of(block->kind), heap.spares);
  if (kIsSeen && ages_segments_.load(std::memory_order_relaxed)) note_age(*settled);
  return true;
}

// Frees what other threads returned; nothing is followed then. False: some of it takes the heap's lock.
bool StreamHits::take_returned(StreamHeap& heap) noexcept {
  for (std::uint64_t address = heap.returned.first(); address != 0; address = heap.returned.drop_first()) {
    if (!free_hit(heap, address)) return false;
    stop_following(heap);  // it may have begun with this
  }
  return true;
}

// The same by who has the heap's lock, and does not give it up: blocks that other streams used get their events
// with the next request. A segment with a live block stays its stream's: what is not live there was not live.
void StreamHits::free_returned(StreamHeap& heap) noexcept {
  for (std::uint64_t address = heap.returned.first(); address != 0; address = heap.returned.drop_first()) {
    const BlockMap::Place place = heap.live.place_of(address);
    Block* const block = place.block;
    if (block == nullptr || (block->is_held && std::exchange(block->freed_while_held, true))) {
      say_nothing_was_freed(address);
      continue;
    }
    if (block->is_held) continue;
    heap.live.erase(place);
    if (!block->has_uses) {
      recorder_.trace_freed([&] { return point_of(*block, kNoStackId); });
      free_any_at_once(block);
      continue;
    }
    recorder_.free_requested(block->segment->kind, as_signed(block->bytes), block->oversize, attribution(*block),
                             [&] { return point_of(*block, kNoStackId); });
    if (block->segment->is_paged()) paged_->placement.freed(PagedMemory::place_of(*block));
    begin_waiting(block);
    put_off(block);
  }
}

bool StreamHits::carry_out(StreamHeap& heap) noexcept {
  tell_standing_use(heap);
  LazyFree& lazy = heap.lazy_free;
  Block* const block = lazy.block();
  tell_standing_free(heap);
  const bool is_paged = block->segment->is_paged();
  const bool has_turned = lazy.turns() != 0;
  std::unique_lock<BiasedMutex> turn;
  if (is_paged && (has_turned || lazy.state() == LazyFree::State::awaited)) turn = turn_in_pages(heap);
  heap.recurrence.turned(lazy.untold_turns());
  if (has_turned) heap.has_served_alone = true;
  if (has_turned)
    heap.ledger.blocks.turned(block->kind, lazy.turns(), as_signed(block->bytes), as_signed(block->requested),
                              lazy.change());
  if (has_turned && is_paged) paged_->placement.turned(PagedMemory::place_of(*block), lazy.turns());
  if (has_turned || lazy.state() == LazyFree::State::free) heap.standing_worth.ended(lazy.turns());
  lazy.end_turns();
  if (lazy.state() == LazyFree::State::free && is_paged) {
    if (!count_free(heap, *block, {})) return false;
    heap.live.erase(block->address);
    if (has_turned)
      put_free_paged(block, heap.spares);
    else
      free_in_turn(heap, block);
  } else if (lazy.state() == LazyFree::State::free) {
    const FreeNeighbours free(*block);
    if (!count_free(heap, *block, splits_by_freeing(*block, free))) return false;
    heap.live.erase(block->address);
    put_free(block, free, heap.of(block->kind), heap.spares);
  } else if (lazy.state() == LazyFree::State::awaited) {
    heap.live.erase(block->address);
    if (is_paged) paged_->placement.freed(PagedMemory::place_of(*block));
  }
  lazy.end();
  return true;
}

// Requires: the stream's lock. Who has the heap's finds the entries written, for it has that, too.
void StreamHits::write_staged_alone(StreamHeap& heap) noexcept {
  const std::span<const StagedEvent> events = heap.stage.events();
  const std::size_t entries = DeviceHistory::entries_of(events);
  HistoryRing::Claim claim;
  {
    const std::lock_guard lock(staged_mutex_);
    claim = history_.claim(events.size(), entries);
    if (claim.first == nullptr) {
      write_staged(heap);
      return;
    }
  }
  DeviceHistory::fill(claim, events, stream_number(heap.stream));
  heap.stage.clear();
}

// Requires: the heap's lock, or the stream's and staged_mutex_.
void StreamHits::write_staged(StreamHeap& heap) noexcept {
  history_.add(heap.stage.events(), stream_number(heap.stream));
  heap.stage.clear();
}

void StreamHits::settle_lazy_free(StreamHeap& heap) noexcept {
  tell_standing_use(heap);
  LazyFree& lazy = heap.lazy_free;
  Block* const block = lazy.block();
  const LazyFree::State state = lazy.state();
  const std::int64_t turns = lazy.turns();
  const InactiveSplitChange change = lazy.change();
  lazy.end();
  if (turns != 0) heap.has_served_alone = true;
  if (turns != 0)
    recorder_.turned(block->segment->kind, turns, as_signed(block->bytes), as_signed(block->requested), change, false,
                     attribution(*block));
  if (turns != 0 && block->segment->is_paged()) paged_->placement.turned(PagedMemory::place_of(*block), turns);
  if (turns != 0 || state == LazyFree::State::free) heap.standing_worth.ended(turns);
  if (state < LazyFree::State::free) return;
  heap.live.erase(block->address);
  if (state == LazyFree::State::free)
    free_any_at_once(block);
  else if (block->segment->is_paged())
    paged_->placement.freed(PagedMemory::place_of(*block));
}

}  // namespace cistern
