#pragma once

// AwakeStreams: a bit for each stream of a heap that is awake, and which of them have frees that wait for others
// (AwaitedFrees); and one for the heap, which has others (PendingFrees).
//
// Such frees are every request's concern, for each asks for the events of all: so it is one word, which a request reads
// with no lock held. What a stream has is guarded by its own lock.
// Thread safety: bits and the heaps that they stand for may be read at any time, and be others' by then, which a heap
// says under its lock; begin_awaiting and end_awaiting take the lock of the stream whose bit it is; the rest is for who
// holds the heap's. O(1), or O(bits).

#include "allocator/biased_mutex.h"

#include <array>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace cistern {

struct StreamHeap;

template <class Processors>
class BasicAwakeStreams {
 public:
  using Bits = std::uint64_t;
  // No more streams are awake.
  static constexpr std::size_t kMost = 63;
  // Of no stream: frees wait that the heap has.
  static constexpr Bits kOfHeap = Bits{1} << kMost;

  BasicAwakeStreams() = default;
  BasicAwakeStreams(const BasicAwakeStreams&) = delete;
  BasicAwakeStreams& operator=(const BasicAwakeStreams&) = delete;

  [[nodiscard]] Bits awaiting() const noexcept { return awaiting_.load(std::memory_order_acquire); }
  // Calls visit(StreamHeap&) for each stream of them; for one twice, if it sleeps and wakes meanwhile.
  template <class Visit>
  void for_each(Bits bits, Visit&& visit) const {
    for (bits &= ~kOfHeap; bits != 0; bits &= bits - 1)
      visit(*heaps_[static_cast<std::size_t>(std::countr_zero(bits))].load(std::memory_order_acquire));
  }

  // A free of the stream waits, or none does any more. `alone`: no other stream is awake, and nobody else comes here.
  void begin_awaiting(Bits bit, bool alone) noexcept {
    if ((awaiting() & bit) != 0) return;
    if (alone)
      awaiting_.store(awaiting() | bit, std::memory_order_release);
    else
      awaiting_.fetch_or(bit, std::memory_order_release);
  }
  void end_awaiting(Bits bit, bool alone) noexcept {
    if ((awaiting() & bit) == 0) return;
    if (alone)
      awaiting_.store(awaiting() & ~bit, std::memory_order_relaxed);
    else
      awaiting_.fetch_and(~bit, std::memory_order_relaxed);
  }
  // All such frees were handed over to the heap, which has some then: at no time does a request find none.
  void hand_over() noexcept { awaiting_.store(kOfHeap, std::memory_order_relaxed); }
  // Whether the heap has any: by who lets its lock go.
  void let_heap_await(bool has_some) noexcept {
    const Bits bits = awaiting_.load(std::memory_order_relaxed);
    if (((bits & kOfHeap) != 0) == has_some) return;
    awaiting_.store(bits ^ kOfHeap, std::memory_order_release);
  }
  // Of the next free that waits: those of one thread are numbered in their order.
  [[nodiscard]] std::uint64_t next_number(bool alone) noexcept {
    if (!alone) return next_number_.fetch_add(1, std::memory_order_relaxed);
    const std::uint64_t number = next_number_.load(std::memory_order_relaxed);
    next_number_.store(number + 1, std::memory_order_relaxed);
    return number;
  }

  // A bit for a stream that wakes. Requires: one is left.
  [[nodiscard]] Bits take(StreamHeap& heap) noexcept {
    assert(taken_ != ~kOfHeap);
    const int place = std::countr_one(taken_);
    heaps_[static_cast<std::size_t>(place)].store(&heap, std::memory_order_release);
    taken_ |= Bits{1} << place;
    return Bits{1} << place;
  }
  // Requires: no free of the stream waits.
  void give_back(Bits bit) noexcept { taken_ &= ~bit; }

 private:
  template <class T>
  using Atomic = typename Processors::template Atomic<T>;

  Atomic<Bits> awaiting_{0};
  alignas(64) Atomic<std::uint64_t> next_number_{0};  // away from what every request reads
  Bits taken_ = 0;
  std::array<Atomic<StreamHeap*>, kMost> heaps_{};
};

using AwakeStreams = BasicAwakeStreams<HostProcessors>;

}  // namespace cistern
