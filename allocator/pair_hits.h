#pragma once

// PairHits: a block that its stream handed out last is freed, and asked for again: the shortest walk of a free and of a
// request, made where they enter, without a call and without what a call has to save.
//
// Only where no other than the history is to be told, and only with a lock that leans towards the calling thread. Asked
// each time: the thread's tag, frees of streams that wait, blocks that other threads returned, whether steps are
// written down, and a place for an entry. What else such a step would look at is changed under the heap's lock alone,
// and who takes that ends what stands: so that it stands says all of that at once (LazyFree). These say no wherever
// anything else is to be done, with nothing changed, and stream_hits.cpp does it.
//
// Thread safety: any public member may be called from any thread.

#include "allocator/heap_blocks.h"

#include <cstddef>
#include <cstdint>

namespace cistern {

// Behind a call that would be the last of a function: with it the frame of that function stays, and stacks name what
// the user called.
[[gnu::always_inline]] inline void keep_frame() noexcept { __asm__ volatile(""); }

class PairHits : public HeapBlocks {
 public:
  // Whose block may begin at `address`, but for guests; null: not known without the heap's lock. O(1).
  [[nodiscard]] StreamHeap* find_by_page(std::uint64_t address) const noexcept {
    return stream_heaps_.find_by_page(address);
  }
  // The same without a loop; null: not known so.
  [[nodiscard, gnu::always_inline]] StreamHeap* find_recent_by_page(std::uint64_t address) const noexcept {
    return stream_heaps_.find_recent_by_page(address);
  }
  // Whether the free stands now. O(1).
  [[nodiscard, gnu::always_inline]] bool let_stand(StreamHeap& heap, std::uint64_t address) noexcept {
    // First what does not change with each request: another thread would fetch that line each time.
    if (heap.allocates.load(std::memory_order_relaxed) != ThreadMark::if_known()) return false;
    LazyFree& lazy = heap.lazy_free;
    if (!lazy.goes(address) || !heap.mutex.try_enter()) return false;
    const bool stands = !heap.recurrence.learns() && has_place_for_entry(heap);
    if (stands) [[likely]] {
      const std::size_t requested = lazy.go_plainly();
      add_entry<kFreed>(heap, address, requested);
    }
    heap.mutex.leave();
    return stands;
  }
  // Whether the stream's use of the block is the one that is kept of it: then it is known. O(1).
  [[nodiscard, gnu::always_inline]] bool use_again(StreamHeap& heap, std::uint64_t address,
                                                   const StreamIdentity& stream, int device, bool is_owned) noexcept {
    LazyFree& lazy = heap.lazy_free;
    if (!lazy.goes(address) || !heap.mutex.try_enter()) return false;
    const bool is_kept =
        heap.standing_use.is_of(stream, device, is_owned) && lazy.turns() != 0 && !heap.recurrence.learns();
    if (is_kept) [[likely]] {
      heap.standing_use.begin();
      lazy.share();
    }
    heap.mutex.leave();
    return is_kept;
  }

 protected:
  using HeapBlocks::HeapBlocks;
  ~PairHits() = default;

  // The block, handed out again; or null. Requires: bytes > 0. O(1).
  [[nodiscard, gnu::always_inline]] void* take_back(StreamHeap& heap, std::size_t bytes,
                                                    const StreamIdentity& stream) noexcept {
    LazyFree& lazy = heap.lazy_free;
    if (!lazy.comes_for(bytes) || awake_.awaiting() != 0 || current_tag() != kUntagged || !heap.mutex.try_enter())
      return nullptr;
    std::uint64_t address = 0;
    // It may be another stream's than it was found as.
    if (heap.stream.id == stream.id && heap.returned.is_surely_empty() && has_place_for_entry(heap)) [[likely]] {
      address = lazy.come_back_plainly();
      add_entry<static_cast<std::uint64_t>(TraceAction::alloc)>(heap, address, bytes);
    }
    heap.mutex.leave();
    return reinterpret_cast<void*>(address);
  }
  // Whether what streams hand out from now on may come and go so. Requires: the heap's lock.
  [[nodiscard]] bool can_have_plain_pairs() const noexcept {
    return (!history_.is_on() || history_.clock().has_counter()) && !api_.note_allocate && !api_.note_free &&
           !api_.note_use && !gathering().includes(HistoryContext::state) && routing_.empty();
  }

 private:
  [[nodiscard, gnu::always_inline]] bool has_place_for_entry(const StreamHeap& heap) const noexcept {
    if (!history_.is_on()) return true;
    return one_stream_serves_ ? history_.adds_own_at_once() : !heap.stage.is_full();
  }
  // Requires: that.
  template <std::uint64_t kAction>
  [[gnu::always_inline]] void add_entry(StreamHeap& heap, std::uint64_t address, std::size_t requested) noexcept {
    if (!history_.is_on()) return;
    const std::uint64_t ticks = TickClock::counter();
    if (one_stream_serves_)
      history_.add_own_at_once<kAction>(address, as_signed(requested), stream_number(heap.stream), ticks);
    else
      heap.stage.add(DeviceHistory::staged(kAction, address, as_signed(requested), ticks));
  }
};

}  // namespace cistern
