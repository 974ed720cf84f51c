// Hits in paged memory, and frees there, without the heap's lock: the walks of stream_hits.cpp where the
// stream's blocks are in pages. A hit is a place that the log knows to be free, and the stream's, in just this state;
// or, if the log knows none, what the ladder says, as long as that is the stream's own free bytes: a part of the place
// that a larger request came to, if that is known to be free, or what the free runs say (page_fit.cpp).
//
// The records of paged memory are all streams'. A stream that serves alone has them with its own lock, which whoever
// has the heap's has, too; several take turns, but not with frees that stand or are left, and with steps that are
// followed.

#include "allocator/stream_walks.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <vector>

namespace cistern {
namespace {

// The clock may take longer than a hit.
constexpr std::uint32_t kHitsBetweenLooks = 32;

}  // namespace

// Requires: what the stream left for later is carried out.
void* StreamHits::take_paged_hit(StreamHeap& heap, std::size_t bytes, bool only_known) noexcept {
  if (decays_ && is_look_due(heap)) return nullptr;
  Block* block = nullptr;
  bool is_known = false;
  {
    const auto turn = turn_in_pages(heap);
    const PlacementLog::Number known = find_known(heap, bytes);
    is_known = known != PlacementLog::kNone;
    // What is known and cannot be had so is found again, at once, by who has the heap's lock.
    if (is_known)
      block = take_known(heap, known, bytes);
    else if (!only_known)
      block = fit_paged_block(heap, bytes);
  }
  if (block == nullptr) return nullptr;
  if (may_stand_in_pages(heap)) heap.lazy_free.begin(block, {}, pairs_are_plain_);
  if (is_known)
    note_step<StreamStep::Kind::allocation>(heap, *block, [] { return InactiveSplitChange{}; });
  else
    heap.recurrence.cut();  // what the ladder says depends on more than the stream's blocks
  return handed_out(heap, block->address, block->bytes, bytes, block->tag);
}

// Its turns do not look at the clock. Beside other streams it is as if it were freed when it is carried out: who needs
// its bytes has the heap's lock, and finds it so; who takes a place that it knows finds another state.
bool StreamHits::may_stand_in_pages(StreamHeap& heap) const noexcept {
  if (decays_ || heap.ledger.shares || recorder_.keeps_tags()) return false;
  return one_stream_serves_ || heap.standing_worth.tries();
}

// A block at the place that `take` returns the number of, once it is the stream's; it may throw std::bad_alloc,
// unchanged. Null, with nothing changed: not without the heap's lock.
template <class Take>
Block* StreamHits::take_pages(StreamHeap& heap, Sectors place, Sectors sectors, std::size_t requested,
                              Take&& take) noexcept {
  if (!heap.live.has_room() || heap.spares.size() == 0) return nullptr;
  if (policy_.is_oversize(static_cast<std::size_t>(sectors) * kSectorBytes)) [[unlikely]]
    return nullptr;
  const std::uint64_t address = paged_->address_of(place);
  heap.live.fetch_place_of(address);
  if (!stream_heaps_.has_room_for_block(address, heap)) return nullptr;
  const Amounts amounts{PoolKind::large, sectors * kSectorBytes, as_signed(requested)};
  TagShare::Part* part = nullptr;
  if (sees_each_ && !find_part(heap, amounts.bytes, &part)) return nullptr;
  if (!count_allocation(heap, amounts, {})) return nullptr;
  Block* const block = heap.spares.take();
  try {
    paged_->attach(*block, take());
  } catch (const std::bad_alloc&) {
    take_allocation_back(heap, amounts);
    heap.spares.give(block);
    return nullptr;
  }
  block->state = BlockState::active_allocated;
  block->requested = requested;
  if (part != nullptr) count_by_tag(*block, *part);
  stream_heaps_.add_block(address, heap);
  heap.live.insert(block);
  return block;
}

PlacementLog::Number StreamHits::find_known(const StreamHeap& heap, std::size_t bytes) const noexcept {
  return paged_->placement.find_known({PagedMemory::sectors_for(policy_.round(bytes)), heap.paged_stream, true});
}

// Beside other streams, whose frees stand and whose steps are followed, what is live is not exactly known: only a
// stream that serves alone moves the peak.
Block* StreamHits::take_known(StreamHeap& heap, PlacementLog::Number known, std::size_t bytes) noexcept {
  PagePlacement& placement = paged_->placement;
  const KnownPlace& place = placement.place(placement.place_of(known));
  return take_pages(heap, place.address, place.sectors, bytes,
                    [&] { return placement.take(known, heap.paged_stream, one_stream_serves_); });
}

Block* StreamHits::fit_paged_block(StreamHeap& heap, std::size_t bytes) noexcept {
  // Segments come first; and where memory decays each request beside the log's places looks whether some is due.
  if (heap.lacks_addresses || decays_) return nullptr;
  PagePlacement& placement = paged_->placement;
  const Sectors sectors = PagedMemory::sectors_for(policy_.round(bytes));
  OwnBytes own;  // filled field by field: its request would be copied otherwise
  own.request.sectors = sectors;
  own.request.stream = heap.paged_stream;
  const PageRequest& request = own.request;
  if (const PlacementLog::Number larger = placement.find_larger(request); larger != PlacementLog::kNone)
    return take_pages(heap, placement.logged_place(larger).address, sectors, bytes,
                      [&] { return placement.take_part(larger, request, one_stream_serves_); });
  if (!placement.find_own(own)) return nullptr;
  return take_pages(heap, own.choice.address, sectors, bytes,
                    [&] { return placement.take_own(own, one_stream_serves_); });
}

Block* StreamHits::take_paged_step(StreamHeap& heap, const StreamStep& step) noexcept {
  PagePlacement& placement = paged_->placement;
  const Sectors address = paged_->place_at(step.address());
  const Sectors sectors = static_cast<Sectors>(step.bytes()) / kSectorBytes;
  const PlacementLog::Number known = placement.find_known({sectors, heap.paged_stream, true});
  if (known != PlacementLog::kNone && placement.place(placement.place_of(known)).address == address)
    return take_known(heap, known, step.requested());
  return take_pages(heap, address, sectors, step.requested(),
                    [&] { return placement.take_again(address, sectors, heap.paged_stream, one_stream_serves_); });
}

// Whether some memory may have become old enough to go back, which takes the heap's lock. Requires: memory decays.
bool StreamHits::is_look_due(StreamHeap& heap) const noexcept {
  if (heap.hits_until_look != 0) {
    --heap.hits_until_look;
    return false;
  }
  if (api_.host_clock() >= paged_->decay.next_look) return true;
  heap.hits_until_look = kHitsBetweenLooks;
  return false;
}

// False, with nothing changed: it takes the heap's lock. Requires: it is free at once.
bool StreamHits::free_paged_hit(StreamHeap& heap, const BlockMap::Place& place) noexcept {
  Block* const block = place.block;
  if (one_stream_serves_) paged_->placement.fetch(PagedMemory::place_of(*block));  // else that takes a turn
  prefetch(block->previous);
  prefetch(block->next);
  if (!count_free(heap, *block, {})) return false;
  tell_free(heap, *block);
  note_step<StreamStep::Kind::free>(heap, *block, [] { return InactiveSplitChange{}; });
  heap.live.erase(place);
  free_in_turn(heap, block);
  return true;
}

void StreamHits::free_in_turn(StreamHeap& heap, Block* block) noexcept {
  if (heap.leaves_frees && !heap.left_frees.is_full()) return heap.left_frees.add(block);
  const auto turn = turn_in_pages(heap);
  put_free_paged(block, heap.spares);
}

// One whose thread allocates from no other, where several serve. What a thread does on several streams in turn comes
// again only if each sees what it did on the others: places that had others' bytes are known by what all streams have.
void StreamHits::consider_leaving() noexcept {
  if (!serves_paged_ || !leaving_is_due_.load(std::memory_order_relaxed)) return;
  leaving_is_due_.store(false, std::memory_order_relaxed);  // who else stores has the lock of a stream that is awake
  const std::vector<StreamHeap*>& streams = mutex_.streams();
  const auto thread_of = [](const StreamHeap* heap) { return heap->allocates.load(std::memory_order_relaxed); };
  for (StreamHeap* heap : streams)
    heap->leaves_frees = std::ranges::count(streams, thread_of(heap), thread_of) == 1 && streams.size() > 1;
}

}  // namespace cistern
