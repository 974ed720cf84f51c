// Streams that share a ledger with others of their thread: how they count, and when they begin and end to.

#include "allocator/stream_walks.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace cistern {
namespace {

// The stream of whichever heap where this thread's last walk found too little room below the peaks. At a fixed offset
// of the thread's block, as ThreadMark::current.
[[gnu::tls_model("initial-exec")]] constinit thread_local const StreamHeap* lacking = nullptr;

}  // namespace

// Requires: the stream's lock, and that it shares. False, with nothing counted: there is no room, or it is over.
template <bool kComes>
[[gnu::always_inline]] inline bool StreamHits::count_shared(StreamHeap& heap, const Amounts& of,
                                                            const InactiveSplitChange& change) noexcept {
  const std::lock_guard lock(shared_counts_.mutex());
  // Frees may come from any thread.
  if (kComes && !shared_counts_.takes_request()) {
    note_thread(heap);  // whose streams they are not shares on
    return note_lack(heap);
  }
  BlockLedger& shared = recorder_.shared();
  const bool has_room = kComes ? count_allocation_in(shared, of, change) : count_free_in(shared, of, change);
  if (!has_room) return note_lack(heap);
  heap.ledger.live += kComes ? of.bytes : -of.bytes;
  return true;
}

bool StreamHits::count_shared_allocation(StreamHeap& heap, const Amounts& of,
                                         const InactiveSplitChange& change) noexcept {
  return count_shared<true>(heap, of, change);
}

bool StreamHits::count_shared_free(StreamHeap& heap, const Amounts& of, const InactiveSplitChange& change) noexcept {
  return count_shared<false>(heap, of, change);
}

// Requires: the stream's lock, and that the step allocates or frees; uses and waits count nothing. All in one piece,
// for that is most of what such a step takes.
[[gnu::flatten]] bool StreamHits::count_step(StreamHeap& heap, const StreamStep& step) noexcept {
  const Amounts of{step.pool(), as_signed(step.bytes()), as_signed(step.requested())};
  const InactiveSplitChange change = step.splits();
  if (step.kind() == StreamStep::Kind::allocation)
    return heap.ledger.shares ? count_shared<true>(heap, of, change)
                              : count_allocation_in(heap.ledger.blocks, of, change) || note_lack(heap);
  return heap.ledger.shares ? count_shared<false>(heap, of, change)
                            : count_free_in(heap.ledger.blocks, of, change) || note_lack(heap);
}

// What came was counted, and nothing came of it.
void StreamHits::take_allocation_back(StreamHeap& heap, const Amounts& of) noexcept {
  if (!heap.ledger.shares) return heap.ledger.blocks.take_back(of.kind, of.bytes, of.requested, {});
  const std::lock_guard lock(shared_counts_.mutex());
  recorder_.shared().take_back(of.kind, of.bytes, of.requested, {});
  heap.ledger.live -= of.bytes;
}

bool StreamHits::note_lack(StreamHeap& heap) const noexcept {
  lacking = room_moves() ? &heap : nullptr;
  return false;
}

bool StreamHits::lacks_room(const StreamHeap& heap) noexcept { return lacking == &heap; }

const StreamHeap* StreamHits::take_lack() noexcept { return std::exchange(lacking, nullptr); }

// Room below the peaks for what the stream lacked it for, of what others have. Blocks stay where they are, and streams
// go on with what they know of their steps, for those that are followed are counted. Requires: the locks of all streams
// that are awake. False: it takes the heap's lock.
bool StreamHits::share_room(StreamHeap& lacks) noexcept {
  const std::vector<StreamHeap*>& streams = mutex_.streams();
  const auto may_lend = [this](const StreamHeap* heap) {
    return may_serve(*heap) && (!heap->recurrence.is_followed() || heap->counts_steps);
  };
  if (!std::ranges::all_of(streams, may_lend)) return false;
  // To its ledger a block is there until its free is carried out.
  for (StreamHeap* heap : streams) {
    if (heap->recurrence.is_followed()) continue;
    if (heap->returned.first() != 0) static_cast<void>(take_returned(*heap));
    if (!settle_by_stream(*heap)) return false;
  }
  if (!recorder_.grant_room(lacks.ledger)) return false;
  consider_sharing(lacks);
  return true;
}

// Threads come and go, and streams with them.
void StreamHits::consider_sharing(StreamHeap& heap) noexcept {
  const ThreadMark* const allocates = heap.allocates.load(std::memory_order_relaxed);
  const bool is_its_threads = recorder_.sharing() != 0 && shared_counts_.is_of(allocates) && !shared_counts_.is_over();
  if (heap.ledger.shares) {
    if (!shared_counts_.is_of(allocates)) recorder_.end_sharing(heap.ledger);
    if (shared_counts_.is_over()) end_sharing();
  } else if (is_scarce(heap) && is_its_threads) {
    recorder_.share(heap.ledger);
  } else if (is_scarce(heap) && allocates != nullptr) {
    begin_sharing(heap);
  }
}

bool StreamHits::is_scarce(const StreamHeap& heap) noexcept {
  return heap.ledger.is_scarce() && heap.is_awake.load(std::memory_order_relaxed);
}

// With the others of its thread that want to, if there are any. Those of another thread that share end it soon.
void StreamHits::begin_sharing(StreamHeap& heap) noexcept {
  const ThreadMark* const allocates = heap.allocates.load(std::memory_order_relaxed);
  const auto wants_to = [&](StreamHeap* stream) {
    return stream != &heap && is_scarce(*stream) && stream->allocates.load(std::memory_order_relaxed) == allocates;
  };
  const std::vector<StreamHeap*>& streams = mutex_.streams();
  if (std::none_of(streams.begin(), streams.end(), wants_to)) return;
  if (recorder_.sharing() != 0) {
    shared_counts_.give_way();
    if (!shared_counts_.is_over()) return;
    end_sharing();
  }
  recorder_.share(heap.ledger);
  for (StreamHeap* stream : streams)
    if (wants_to(stream)) recorder_.share(stream->ledger);
  shared_counts_.begin(allocates);
}

void StreamHits::end_sharing() noexcept {
  for (StreamHeap* stream : mutex_.streams())
    if (stream->ledger.shares) recorder_.end_sharing(stream->ledger);
}

}  // namespace cistern
