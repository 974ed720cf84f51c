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

#include "allocator/stream_walks.h"

namespace cistern {
namespace {

// Steps that came again and lead elsewhere: a block was handed out that the heap would not have. Memory that two have
// is worse than an end.
[[noreturn]] void end_for_a_wrong_step(const StreamStep& step) noexcept {
  std::fprintf(stderr, "cistern: a step of %#llx, %llu bytes, did not come again as it was followed\n",
               static_cast<unsigned long long>(step.address()), static_cast<unsigned long long>(step.requested()));
  std::abort();
}

// The same of one that others use.
[[noreturn]] void end_for_an_unknown_block() noexcept {
  std::fprintf(stderr, "cistern: a block that others use is not where steps were followed to\n");
  std::abort();
}

}  // namespace

[[gnu::flatten]] void* StreamHits::allocate_by_steps(StreamHeap& heap, std::size_t bytes, StreamIdentity stream,
                                                     bool at_hand) {
  if (void* const pointer = allocate_as_expected(heap, bytes, stream)) [[likely]]
    return pointer;
  return allocate_beside_steps(&heap, bytes, stream, at_hand);
}

[[gnu::flatten]] bool StreamHits::free_by_steps(StreamHeap& of_page, std::uint64_t address) noexcept {
  return free_as_expected(of_page, address) || free_beside_steps(of_page, address);
}

// What else a request looks at is changed under the heap's lock alone, and with that nothing is followed.
inline void* StreamHits::allocate_as_expected(StreamHeap& heap, std::size_t bytes,
                                              const StreamIdentity& stream) noexcept {
  history_.provide();
  const std::lock_guard lock(heap.mutex);
  // First, for what is followed is awake: nothing else of a stream that sleeps is to be read with its lock alone.
  if (!heap.recurrence.is_followed() || heap.stream.id != stream.id || current_tag() != kUntagged) return nullptr;
  return follow_request(heap, bytes);
}

// Requires: the stream's lock, steps are followed, and all that others' requests would complete is complete.
void* StreamHits::follow_request(StreamHeap& heap, std::size_t bytes) noexcept {
  for (std::uint64_t address = heap.returned.first(); address != 0; address = heap.returned.drop_first())
    if (!follow_free(heap, address)) return nullptr;
  if (is_recorded(heap.stream) || !heap.recurrence.expects_allocation(bytes) || !count_next_step(heap)) return nullptr;
  const StreamStep& step = heap.recurrence.follow_next();
  return handed_out(heap, step.address(), step.bytes(), bytes);
}

inline bool StreamHits::free_as_expected(StreamHeap& heap, std::uint64_t address) noexcept {
  history_.provide();
  std::unique_lock lock(heap.mutex);
  if (follow_free(heap, address)) [[likely]]
    return true;
  return heap.recurrence.is_followed() && await_as_expected(heap, address, std::move(lock));
}

void* StreamHits::take_next(StreamHeap& heap, std::size_t bytes, const StreamIdentity& stream) noexcept {
  return follows_requests(heap) ? allocate_as_expected(heap, bytes, stream) : nullptr;
}

bool StreamHits::free_next(StreamHeap& heap, std::uint64_t address) noexcept {
  return follows_frees(heap) && free_as_expected(heap, address);
}

// Requires: the stream's lock, and steps are followed. The first use of a block is a step; further ones are none, nor
// are those by its own stream.
bool StreamHits::follow_use(StreamHeap& heap, std::uint64_t address, StreamUse& use) {
  if (use.device == device_ && use.stream.id == heap.stream.id)
    return heap.recurrence.next_of_live(address) != nullptr || heap.followed_uses.find(address) != nullptr;
  const CUstream user = use.stream.handle;
  if (heap.recurrence.expects(StreamStep::Kind::use, address)) {
    StreamUses uses;
    heap.followed_uses.make_room();
    static_cast<void>(add_use(uses, heap.use_nodes, std::move(use)));
    const StreamStep& step = heap.recurrence.follow_next();
    heap.followed_uses.add(address, step.bytes(), std::move(uses));
    api_.note_use(address, step.bytes(), user);
    return true;
  }
  if (FollowedUses::Used* const used = heap.followed_uses.find(address)) {
    if (add_use(used->uses, heap.use_nodes, std::move(use))) api_.note_use(address, used->bytes, user);
    return true;
  }
  Block* const block = used_before(heap, address);
  if (block == nullptr) return false;
  add_use(block, std::move(use));
  return true;
}

// A block that others used before steps were followed, and since; null: none begins there. One that was freed since has
// no uses left.
Block* StreamHits::used_before(const StreamHeap& heap, std::uint64_t address) noexcept {
  Block* const block = heap.live.find(address);
  return block != nullptr && !block->uses.empty() ? block : nullptr;
}

// Requires: the stream's lock, and steps are followed.
bool StreamHits::await_as_expected(StreamHeap& heap, std::uint64_t address,
                                   std::unique_lock<BiasedMutex> lock) noexcept {
  if (!heap.recurrence.expects(StreamStep::Kind::wait, address)) return false;
  AwaitedFrees::Recording recording{address, nullptr, {}};
  FollowedUses::Used* const used = heap.followed_uses.find(address);
  Block* const before = used == nullptr ? used_before(heap, address) : nullptr;
  if (used == nullptr && before == nullptr) return false;
  StreamUses& uses = used != nullptr ? used->uses : before->uses;
  if (!can_await(heap, uses)) return false;
  const StreamStep& step = heap.recurrence.follow_next();
  recording.uses.swap(uses);
  if (used != nullptr) heap.followed_uses.erase(used);
  begin_entries(heap, recording, step.bytes(), step.requested());
  record_events(heap, recording, lock);
  return true;
}

bool StreamHits::follow_done(StreamHeap& heap, std::uint64_t address, std::uint64_t* at) noexcept {
  if (!heap.recurrence.is_followed() || !heap.recurrence.expects(StreamStep::Kind::done, address) ||
      !count_next_step(heap))
    return false;
  trace_completed(heap, address, heap.recurrence.follow_next().requested(), at);
  return true;
}

void StreamHits::learn_step(StreamHeap& heap, StreamStep::Kind kind, const Block& block,
                            const InactiveSplitChange& splits) noexcept {
  if (!heap.recurrence.learn(kind, {block.address, block.bytes, block.requested, block.kind}, splits)) return;
  if (!settle_by_stream(heap)) return;
  // One that shares its ledger does although the others have gone.
  heap.counts_steps = room_moves() || heap.ledger.shares;
  heap.recurrence.follow();
}

void StreamHits::carry_out_steps(StreamHeap& heap) noexcept {
  std::unique_lock<BiasedMutex> turn;
  if (heap.paged_stream >= 0) turn = turn_in_pages(heap);
  heap.recurrence.stop([&](const StreamStep& step, std::int64_t laps) { count_laps(heap, step, laps); },
                       [&](const StreamStep& step) { carry_out_step(heap, step); });
  if (!heap.awaited.empty() || heap.followed_uses.size() != 0) know_blocks(heap);
}

// It was done in a round before, from the same state: there is room for it, and no peak moves.
[[gnu::flatten]] void StreamHits::carry_out_step(StreamHeap& heap, const StreamStep& step) noexcept {
  using Kind = StreamStep::Kind;
  if (step.kind() == Kind::allocation) {
    Block* const block = heap.paged_stream >= 0 ? take_paged_step(heap, step) : take_step(heap, step);
    if (block == nullptr || block->address != step.address()) end_for_a_wrong_step(step);
    return;
  }
  if (step.kind() == Kind::done) return carry_out_done(heap, step);
  const BlockMap::Place place = heap.live.place_of(step.address());
  Block* const block = place.block;
  if (step.kind() != Kind::free) return carry_out_use_or_wait(heap, step, place);
  if (!is_free_at_once(block)) end_for_a_wrong_step(step);
  if (block->segment->is_paged()) {
    if (!count_free(heap, *block, {})) end_for_a_wrong_step(step);
    heap.live.erase(place);
    put_free_paged(block, heap.spares);
    return;
  }
  const FreeNeighbours free(*block);
  if (!heap.counts_steps && !count_free(heap, *block, splits_by_freeing(*block, free))) end_for_a_wrong_step(step);
  heap.live.erase(place);
  put_free(block, free, heap.of(block->kind), heap.spares);
}

Block* StreamHits::take_step(StreamHeap& heap, const StreamStep& step) noexcept {
  InactiveSplitChange change;
  return picks_plainly_ ? take_block<true>(heap, step.requested(), change, heap.counts_steps)
                        : take_block<false>(heap, step.requested(), change, heap.counts_steps);
}

// Who uses it, and which events it waits for, is known when all steps are carried out.
void StreamHits::carry_out_use_or_wait(StreamHeap& heap, const StreamStep& step,
                                       const BlockMap::Place& place) noexcept {
  Block* const block = place.block;
  const bool is_use = step.kind() == StreamStep::Kind::use;
  if (block == nullptr || block->has_uses == is_use || !block->uses.empty()) end_for_a_wrong_step(step);
  block->has_uses = is_use;
  if (is_use) return;
  heap.live.erase(place);
  if (block->segment->is_paged()) paged_->placement.freed(PagedMemory::place_of(*block));
  block->state = BlockState::active_pending_free;
  heap.awaited.begin(block);
}

void StreamHits::carry_out_done(StreamHeap& heap, const StreamStep& step) noexcept {
  Block* const block = heap.awaited.block_at(step.address());
  if (block == nullptr) end_for_a_wrong_step(step);
  heap.awaited.end(block);
  block->pending_events = 0;
  if (block->segment->is_paged()) {
    if (!count_free(heap, *block, {})) end_for_a_wrong_step(step);
    return settle_paged(block, heap.spares);
  }
  const FreeNeighbours free(*block);
  if (!heap.counts_steps && !count_free(heap, *block, splits_by_freeing(*block, free))) end_for_a_wrong_step(step);
  put_free(block, free, heap.of(block->kind), heap.spares);
}

// Blocks that wait or are used, which steps said by their addresses. Requires: all steps are carried out.
void StreamHits::know_blocks(StreamHeap& heap) noexcept {
  if (!heap.awaited.know_blocks()) end_for_an_unknown_block();
  heap.followed_uses.take_all([&](FollowedUses::Used& used) {
    Block* const block = heap.live.find(used.address);
    if (block == nullptr || !block->has_uses || !block->uses.empty()) end_for_an_unknown_block();
    block->uses.swap(used.uses);
  });
}

// Rounds lead back to where they began: no figure but of what ever came is another for them.
void StreamHits::count_laps(StreamHeap& heap, const StreamStep& step, std::int64_t laps) noexcept {
  const bool comes = step.kind() == StreamStep::Kind::allocation;
  const InactiveSplitChange splits = step.splits();
  if (!heap.counts_steps)
    heap.ledger.blocks.recurred(step.pool(), laps, comes ? as_signed(step.bytes()) : 0,
                                comes ? as_signed(step.requested()) : 0,
                                {std::max<std::int64_t>(splits.count, 0), std::max<std::int64_t>(splits.bytes, 0)});
  if (heap.paged_stream >= 0 && comes)
    paged_->placement.recurred(heap.paged_stream, static_cast<Sectors>(step.bytes()) / kSectorBytes, laps);
}

// A 1,280th of the memory that the heap has, and what the smallest has: metadata is to stay below a thousandth.
std::size_t StreamHits::worthwhile_steps() const noexcept {
  constexpr std::size_t kLeast = std::size_t{1} << 14;
  if (!follows_steps_) return 0;
  return kLeast + held_bytes_ / 1280 / Recurrence::kBytesOfStep;
}

void StreamHits::provide_for_steps(StreamHeap& heap) noexcept {
  std::size_t wanted = 0;
  Recurrence::Room room;
  {
    const std::lock_guard lock(heap.mutex);
    if (!may_serve(heap)) return;
    const std::size_t had = heap.recurrence.room();
    const std::size_t left = granted_steps_.left_beside(had, most_steps_);
    wanted = heap.recurrence.wanted(std::min(left, Recurrence::kMostSteps));
    // Both at a time would be more than all are worth: what was written down goes first.
    if (wanted != 0 && had + wanted > left) {
      stop_following(heap);
      room = take_back_room(heap);
    }
  }
  room = {};  // before the next one comes
  if (wanted != 0) room = Recurrence::Room::of(wanted);
  const std::lock_guard lock(heap.mutex);
  if (!may_serve(heap)) return;
  stop_following(heap);
  tell_standing_use(heap);
  tell_standing_free(heap);
  // Another stream may have been given the same.
  const std::size_t had = heap.recurrence.room();
  const std::size_t more = room.size() > had ? room.size() - had : 0;
  if (!granted_steps_.grant(more, most_steps_)) room = {};
  room = heap.recurrence.take(std::move(room));
}

// Requires: the stream's lock, and nothing is followed.
Recurrence::Room StreamHits::take_back_room(StreamHeap& heap) noexcept {
  granted_steps_.take_back(heap.recurrence.room());
  return heap.recurrence.give_up_room();
}

}  // namespace cistern
