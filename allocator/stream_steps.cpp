// Steps of a stream that come again: with the lock of the stream alone, as the walks of stream_hits.cpp, which they
// take the place of. What was followed is carried out by the parts of those walks that tell nobody, for all was told
// when it happened.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "allocator/stream_hits.h"

namespace cistern {
namespace {

// Steps that came again and lead elsewhere: a block was handed out that the heap would not have. Memory that two have
// is worse than an end.
[[noreturn]] void end_for_a_wrong_step(const StreamStep& step) noexcept {
  std::fprintf(stderr, "cistern: a step of %#llx, %llu bytes, did not come again as it was followed\n",
               static_cast<unsigned long long>(step.address()), static_cast<unsigned long long>(step.requested()));
  std::abort();
}

}  // namespace

// What else a request looks at is changed under the heap's lock alone, and with that nothing is followed.
[[gnu::flatten]] void* StreamHits::allocate_as_expected(StreamHeap& heap, std::size_t bytes,
                                                        const StreamIdentity& stream) noexcept {
  history_.provide();
  const std::lock_guard lock(heap.mutex);
  if (heap.stream.id != stream.id || current_tag() != kUntagged || awake_.awaiting() != 0) return nullptr;
  return follow_request(heap, bytes);
}

// Requires: the stream's lock, and all that others' requests would complete is complete.
void* StreamHits::follow_request(StreamHeap& heap, std::size_t bytes) noexcept {
  for (std::uint64_t address = heap.returned.first(); address != 0; address = heap.returned.drop_first())
    if (!follow_free(heap, address)) return nullptr;
  if (!heap.recurrence.is_followed()) return nullptr;
  const StreamStep* const step = heap.recurrence.follow_allocation(bytes);
  return step == nullptr ? nullptr : handed_out(heap, step->address(), step->bytes(), bytes);
}

[[gnu::flatten]] bool StreamHits::free_as_expected(StreamHeap& heap, std::uint64_t address) noexcept {
  history_.provide();
  const std::lock_guard lock(heap.mutex);
  return follow_free(heap, address);
}

void StreamHits::learn_step(StreamHeap& heap, StreamStep::Kind kind, const Block& block,
                            const InactiveSplitChange& splits) noexcept {
  if (!heap.recurrence.learn(kind, {block.address, block.bytes, block.requested, block.kind}, splits)) return;
  if (settle_by_stream(heap)) heap.recurrence.follow();
}

void StreamHits::carry_out_steps(StreamHeap& heap) noexcept {
  std::unique_lock<BiasedMutex> turn;
  if (heap.paged_stream >= 0) turn = turn_in_pages(heap);
  heap.recurrence.stop([&](const StreamStep& step, std::int64_t laps) { count_laps(heap, step, laps); },
                       [&](const StreamStep& step) { carry_out_step(heap, step); });
}

// It was done in a round before, from the same state: there is room for it, and no peak moves.
[[gnu::flatten]] void StreamHits::carry_out_step(StreamHeap& heap, const StreamStep& step) noexcept {
  if (!step.is_free()) {
    InactiveSplitChange change;
    Block* const block =
        heap.paged_stream >= 0 ? take_paged_step(heap, step) : take_block(heap, step.requested(), change);
    if (block == nullptr || block->address != step.address()) end_for_a_wrong_step(step);
    return;
  }
  const BlockMap::Place place = heap.live.place_of(step.address());
  Block* const block = place.block;
  if (!is_free_at_once(block)) end_for_a_wrong_step(step);
  if (block->segment->is_paged()) {
    if (!count_free(heap, *block, {})) end_for_a_wrong_step(step);
    heap.live.erase(place);
    put_free_paged(block, heap.spares);
    return;
  }
  const FreeNeighbours free(*block);
  if (!count_free(heap, *block, change_by_freeing(*block, free))) end_for_a_wrong_step(step);
  heap.live.erase(place);
  put_free(block, free, heap.of(block->kind), heap.spares);
}

// Rounds lead back to where they began: no figure but of what ever came is another for them.
void StreamHits::count_laps(StreamHeap& heap, const StreamStep& step, std::int64_t laps) noexcept {
  heap.ledger.blocks.recurred(step.pool(), laps, step.is_free() ? 0 : as_signed(step.bytes()),
                              step.is_free() ? 0 : as_signed(step.requested()), {step.splits(), step.split_bytes()});
  if (heap.paged_stream >= 0 && !step.is_free())
    paged_->placement.recurred(heap.paged_stream, static_cast<Sectors>(step.bytes()) / kSectorBytes, laps);
}

// A 1,280th of the memory that the heap has, and what the smallest has: metadata is to stay below a thousandth.
std::size_t StreamHits::worthwhile_steps() const noexcept {
  constexpr std::size_t kLeast = std::size_t{1} << 14;
  return kLeast + held_bytes_ / 1280 / Recurrence::kBytesOfStep;
}

void StreamHits::provide_for_steps(StreamHeap& heap) noexcept {
  std::size_t wanted = 0;
  {
    const std::lock_guard lock(heap.mutex);
    if (!may_serve(heap)) return;
    const std::size_t left = granted_steps_.left_beside(heap.recurrence.room(), most_steps_);
    wanted = heap.recurrence.wanted(std::min(left, Recurrence::kMostSteps));
  }
  Recurrence::Room room = wanted == 0 ? Recurrence::Room() : Recurrence::Room::of(wanted);
  const std::lock_guard lock(heap.mutex);
  if (!may_serve(heap)) return;
  stop_following(heap);
  tell_standing_free(heap);
  // Another stream may have been given the same.
  const std::size_t had = heap.recurrence.room();
  const std::size_t more = room.size > had ? room.size - had : 0;
  if (!granted_steps_.grant(more, most_steps_)) room = {};
  room = heap.recurrence.take(std::move(room));
}

// Of a stream that sleeps. Requires: the heap's lock.
void StreamHits::take_back_room(StreamHeap& heap) noexcept {
  granted_steps_.take_back(heap.recurrence.room());
  heap.recurrence.give_up_room();
}

}  // namespace cistern
