#pragma once

// ReturnedBlocks: addresses of blocks that threads freed which did not allocate them, until a thread that has
// the stream's lock comes by.
//
// A ring of places. Who returns a block takes the next place and then fills it; who has the lock empties
// those that are filled, the oldest first. One that stopped before it filled its place holds up nobody: what others
// filled behind it is taken before it, for their frees are over, and its own is not.
// Thread safety: put may be called from any thread at any time, the rest under the stream's lock. O(1), and O(places)
// while somebody is about to fill one.

#include "allocator/biased_mutex.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace cistern {

template <class Processors>
class BasicReturnedBlocks {
 public:
  template <class T>
  using Atomic = typename Processors::template Atomic<T>;
  using Thread = typename Processors::Thread;
  static constexpr std::size_t kPlaces = 64;

  // False: there is no room. Requires: neither 0 nor ~0.
  [[nodiscard]] bool put(std::uint64_t address) noexcept {
    tell_if_several_return();
    std::uint64_t place = 0;
    if (!take_place(place)) return false;
    places_[place % kPlaces].store(address, std::memory_order_seq_cst);
    return true;
  }

  enum class Put { refused, to_who_is_awake, to_who_sleeps };
  // The same to a stream that may be put to sleep meanwhile. Where it sleeps who has the heap's lock may have looked
  // before, and has to look again.
  [[nodiscard]] Put put(std::uint64_t address, const Atomic<bool>& is_awake) noexcept {
    if (!put(address)) return Put::refused;
    return is_awake.load(std::memory_order_seq_cst) ? Put::to_who_is_awake : Put::to_who_sleeps;
  }
  // The other side of that: before who has the heap's lock looks what is there.
  static void put_to_sleep(Atomic<bool>& is_awake) noexcept { is_awake.store(false, std::memory_order_seq_cst); }

  // The oldest that is there; 0 if there is none. What was put before is there.
  [[nodiscard]] std::uint64_t first() noexcept {
    const std::uint64_t address = places_[front_ % kPlaces].load(std::memory_order_seq_cst);
    if (address == 0) return several_return_.load(std::memory_order_seq_cst) ? first_filled() : 0;
    first_ = front_;
    return address;
  }
  // Whether no place is filled, or about to be: then there is none. Without a loop. Sees what
  // was put before; what is put at the same time may be missed, so that it is not for who puts a stream to sleep.
  [[nodiscard, gnu::always_inline]] bool is_surely_empty() const noexcept {
    return places_[front_ % kPlaces].load(std::memory_order_relaxed) == 0 &&
           (!several_return_.load(std::memory_order_relaxed) || next_.load(std::memory_order_relaxed) == front_);
  }
  // Returns the next one. Requires: the last of these calls found one.
  std::uint64_t drop_first() noexcept {
    if (first_ != front_) {
      places_[first_ % kPlaces].store(kTaken, std::memory_order_relaxed);
      return first();
    }
    std::uint64_t address = kTaken;
    for (; address == kTaken; address = places_[front_ % kPlaces].load(std::memory_order_acquire))
      places_[front_++ % kPlaces].store(0, std::memory_order_relaxed);
    emptied_.store(front_, std::memory_order_release);
    first_ = front_;
    return address != 0 ? address : first();
  }

 protected:
  // The next place, which is to be filled; a test stops in between. False: there is no room.
  [[nodiscard]] bool take_place(std::uint64_t& place) noexcept {
    place = next_.load(std::memory_order_relaxed);
    do {
      if (!is_empty(place)) return false;
    } while (!next_.compare_exchange_strong(place, place + 1, std::memory_order_seq_cst));
    return true;
  }
  // As long as one thread returns all blocks no place is empty before one that is filled, and who empties need not look
  // at what each put changes, which would have to fetch that line again. Told once, for the same reason.
  void tell_if_several_return() noexcept {
    const Thread self = Processors::this_thread();
    Thread before = returns_.load(std::memory_order_acquire);
    if (self != Thread{}) {
      if (before == self) return;
      if (before == Thread{} &&
          returns_.compare_exchange_strong(before, self, std::memory_order_relaxed, std::memory_order_acquire))
        return;
    }
    if (before == Processors::nobody()) return;
    several_return_.store(true, std::memory_order_seq_cst);
    returns_.store(Processors::nobody(), std::memory_order_release);
  }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::uint64_t kTaken = ~std::uint64_t{0};  // before its turn

  // Behind places that are about to be filled, if there are any.
  [[nodiscard, gnu::noinline]] std::uint64_t first_filled() noexcept {
    const std::uint64_t end = next_.load(std::memory_order_seq_cst);
    for (first_ = front_; first_ != end; ++first_) {
      const std::uint64_t address = places_[first_ % kPlaces].load(std::memory_order_seq_cst);
      if (address != 0 && address != kTaken) return address;
    }
    return 0;
  }

  // Asks who empties only where what was seen of it last does not suffice: its line is in another processor's cache.
  [[nodiscard]] bool is_empty(std::uint64_t place) noexcept {
    if (place < emptied_seen_.load(std::memory_order_acquire) + kPlaces) return true;
    const std::uint64_t emptied = emptied_.load(std::memory_order_acquire);
    emptied_seen_.store(emptied, std::memory_order_release);
    return place < emptied + kPlaces;
  }

  alignas(kLine) Atomic<std::uint64_t> next_{0};
  Atomic<std::uint64_t> emptied_seen_{0};  // by who returns
  Atomic<Thread> returns_{Thread{}};       // the only one that does; nobody(): there are several
  alignas(kLine) std::array<Atomic<std::uint64_t>, kPlaces> places_{};
  alignas(kLine) Atomic<std::uint64_t> emptied_{0};
  Atomic<bool> several_return_{false};  // from then on for ever
  std::uint64_t front_ = 0;             // as emptied_, of who empties
  std::uint64_t first_ = 0;             // the place that first() found last
};

using ReturnedBlocks = BasicReturnedBlocks<HostProcessors>;

}  // namespace cistern
