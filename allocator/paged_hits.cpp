// Hits in paged memory, and frees there, with the lock of their stream alone: the walks of stream_hits.cpp where the
// stream's blocks are in pages. A hit is a place that the log knows to be free, and the stream's, in just this state.
//
// The records of paged memory are all streams'. A stream that serves alone has them with its own lock, which whoever
// has the heap's has, too; several take turns, but not with frees that stand and with steps that are followed.

#include "allocator/stream_hits.h"

#include <mutex>
#include <new>

namespace cistern {
namespace {

// The clock may take longer than a hit.
constexpr std::uint32_t kHitsBetweenLooks = 32;

// False, with nothing changed: there is no host memory for it. Beside other streams, whose frees stand and whose steps
// are followed, what is live is not exactly known.
bool take_known(PagedMemory& memory, PlacementLog::Number known, StreamNumber stream, bool is_alone,
                Block& block) noexcept {
  try {
    memory.attach(block, memory.placement.take(known, stream, is_alone));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

// Requires: what the stream left for later is carried out.
void* StreamHits::take_paged_hit(StreamHeap& heap, std::size_t bytes) noexcept {
  if (decays_ && is_look_due(heap)) return nullptr;
  Block* block = nullptr;
  {
    const auto turn = turn_in_pages();
    block = take_paged_block(heap, bytes);
  }
  if (block == nullptr) return nullptr;
  if (may_stand_in_pages(heap)) heap.lazy_free.begin(block, {}, pairs_are_plain_);
  note_step<StreamStep::Kind::allocation>(heap, *block, [] { return InactiveSplitChange{}; });
  return handed_out(heap, block->address, block->bytes, bytes);
}

// Its turns do not look at the clock. Beside other streams it is as if it were freed when it is carried out: who needs
// its bytes has the heap's lock, and finds it so; who takes a place that it knows finds another state.
bool StreamHits::may_stand_in_pages(StreamHeap& heap) const noexcept {
  if (decays_ || heap.ledger.shares) return false;
  return one_stream_serves_ || heap.standing_worth.tries();
}

// Null, with nothing changed: not without the heap's lock.
Block* StreamHits::take_paged_block(StreamHeap& heap, std::size_t bytes) noexcept {
  if (!heap.live.has_room() || heap.spares.size() == 0) return nullptr;
  PagePlacement& placement = paged_->placement;
  const Sectors sectors = PagedMemory::sectors_for(policy_.round(bytes));
  const PlacementLog::Number known = placement.find_known({sectors, heap.paged_stream, true});
  if (known == PlacementLog::kNone) return nullptr;
  const std::uint64_t address = paged_->address_of(placement.place(placement.place_of(known)).address);
  heap.live.fetch_place_of(address);
  if (stream_heaps_.find_by_page(address) != &heap) return nullptr;
  constexpr PoolKind kKind = PoolKind::large;
  const std::int64_t taken = sectors * kSectorBytes;
  Block* const block = heap.spares.take();
  const bool is_counted = count_allocation(heap, kKind, taken, as_signed(bytes), {});
  if (!is_counted || !take_known(*paged_, known, heap.paged_stream, one_stream_serves_, *block)) {
    if (is_counted) take_allocation_back(heap, kKind, taken, as_signed(bytes));
    heap.spares.give(block);
    return nullptr;
  }
  block->state = BlockState::active_allocated;
  block->requested = bytes;
  heap.live.insert(block);
  return block;
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
  if (!count_free(heap, *block, {})) return false;
  tell_free(heap, *block);
  note_step<StreamStep::Kind::free>(heap, *block, [] { return InactiveSplitChange{}; });
  heap.live.erase(place);
  const auto turn = turn_in_pages();
  put_free_paged(block, heap.spares);
  return true;
}

}  // namespace cistern
