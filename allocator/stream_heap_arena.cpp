#include "allocator/stream_heap_arena.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <new>
#include <utility>

namespace cistern {

// Their pages at once: one that is touched first costs more than the rest of a first request.
StreamHeapArena::Slab::Slab(std::size_t heaps)
    : rooms_(heaps), heaps_(std::make_unique_for_overwrite<Storage[]>(heaps)), size_(heaps) {
  bring_pages(heaps_.get(), heaps * sizeof(Storage));
}

StreamHeapArena::Slab::~Slab() {
  if (heaps_ == nullptr) return;  // it was moved from
  for (std::size_t i = made_; i-- > 0;) std::destroy_at(std::launder(reinterpret_cast<StreamHeap*>(&heaps_[i])));
}

StreamHeap& StreamHeapArena::Slab::make() noexcept {
  StreamHeap* const made = new (&heaps_[made_]) StreamHeap(rooms_[made_]);
  ++made_;
  return *made;
}

StreamHeap& StreamHeapArena::take(const StreamIdentity& stream, PrivatePool* home) {
  if (home == nullptr) by_stream_.reserve(1);
  StreamHeap& heap = take_unused();
  heap.stream = stream;
  heap.home = home;
  if (home != nullptr) return heap;
  const std::uint64_t key = key_of(stream.id);
  by_stream_.put(key, &heap);
  latest_.put(key, &heap);
  return heap;
}

StreamHeap& StreamHeapArena::take_unused() {
  if (unused_ != nullptr) {
    StreamHeap& heap = *unused_;
    unused_ = std::exchange(heap.next_unused, nullptr);
    return heap;
  }
  // To wake asks for nothing.
  mutex_.reserve(std::bit_ceil(count_ + 1));
  recorder_.reserve_streams(std::bit_ceil(count_ + 1));
  // As many as there are, for a heap of one stream should not pay for eight.
  if (slabs_.empty() || slabs_.back().is_full()) slabs_.emplace_back(std::clamp(count_, std::size_t{1}, kSlab));
  ++count_;
  return slabs_.back().make();
}

void StreamHeapArena::end(StreamHeap& heap) noexcept {
  if (heap.ledger.is_apart) put_to_sleep(heap);
  wake_counts_.forget(heap.refused_at);
  if (heap.home == nullptr) {
    const std::uint64_t key = key_of(heap.stream.id);
    latest_.erase(key);
    by_stream_.erase(key);
  }
  heap.is_ended = true;
}

void StreamHeapArena::give_back(StreamHeap& heap) noexcept {
  if (!heap.is_ended) end(heap);
  heap.is_ended = false;
  heap.end.reset();
  heap.home = nullptr;
  heap.was_asked = heap.has_hidden_segments = heap.lacks_addresses = false;
  heap.next_unused = unused_;
  unused_ = &heap;
}

void StreamHeapArena::consider_waking(StreamHeap& heap) noexcept {
  if (heap.home != nullptr || heap.is_ended || !std::exchange(heap.was_asked, true)) return;
  if (!wake_counts_.has_room(mutex_.awake())) {
    if (wake_counts_.refuse(heap.refused_at)) look_for_idle();
    return;
  }
  wake_counts_.forget(heap.refused_at);
  if (wake_counts_.note_wake()) look_for_idle();
  recorder_.part(heap.ledger);
  heap.has_served_alone = true;
  mutex_.wake(heap);
}

void StreamHeapArena::look_for_idle() noexcept {
  const std::vector<StreamHeap*>& streams = mutex_.streams();
  const bool are_few = streams.size() < WakeCounts::kFew;
  const auto busy = std::count_if(streams.begin(), streams.end(),
                                  [&](StreamHeap* heap) { return are_few || heap->has_served_alone; });
  const std::size_t waking = mutex_.awake() - streams.size();
  const std::size_t most = wake_counts_.look(mutex_.awake(), static_cast<std::size_t>(busy) + waking);
  if (are_few) return;
  std::size_t may_stay = most - std::min(waking, most);
  for (StreamHeap* heap : streams) {
    const bool stays = std::exchange(heap->has_served_alone, false) && may_stay > 0;
    if (stays)
      --may_stay;
    else if (heap->ledger.is_apart)
      put_to_sleep(*heap);
  }
}

// Whoever returns a block to it either sees that, or is seen by who has the lock next.
void StreamHeapArena::put_to_sleep(StreamHeap& heap) noexcept {
  recorder_.join(heap.ledger);
  heap.was_asked = heap.wants_to_wake = false;
  ReturnedBlocks::put_to_sleep(heap.is_awake);
}

// At least half of the room is free then, so that it is not looked through for each guest.
void StreamHeapArena::forget_former_guests() {
  guests_.erase_if([](const StreamHeap::Guest& guest) { return !guest.is_live; });
  try {
    guests_.reserve(guests_.size() + 1);
  } catch (const std::bad_alloc&) {
    if (!guests_.has_room(1)) throw;
  }
}

bool StreamHeapArena::add_pages(std::uint64_t address, std::size_t bytes, StreamHeap& owner) noexcept {
  if (!fills_pages(address, bytes)) return false;
  try {
    reserve_pages(address, bytes);
  } catch (const std::bad_alloc&) {
    return false;
  }
  for_each_page(address, bytes, [&](std::uint64_t page) { by_page_.put(page, &owner); });
  return true;
}

void StreamHeapArena::remove_pages(std::uint64_t address, std::size_t bytes) noexcept {
  for_each_page(address, bytes, [this](std::uint64_t page) { by_page_.erase(page); });
}

void StreamHeapArena::put_pages(const Segment& segment) noexcept {
  for_each_page(segment.address, segment.bytes, [&](std::uint64_t page) { by_page_.put(page, segment.owner); });
}

}  // namespace cistern
