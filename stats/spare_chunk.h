#pragma once

// SpareChunk: the chunk that a ring will need next, brought while no lock is held.
//
// The ring, under the heap's lock, says that it wants one; whoever is about to take the lock next brings
// it; the ring takes it when it needs it. What did not come in time the ring asks for itself.
//
// Thread safety: provide() may be called by any thread at any time; the rest is called under the lock. O(1), and
// provide() what it takes to map a chunk and touch its pages.

#include "stats/history_entry.h"

#include <atomic>
#include <cstdint>

namespace cistern {

template <class Processors>
class BasicSpareChunk {
 public:
  using Hold = BasicChunkHold<Processors>;

  BasicSpareChunk() = default;
  ~BasicSpareChunk() { static_cast<void>(take()); }
  BasicSpareChunk(const BasicSpareChunk&) = delete;
  BasicSpareChunk& operator=(const BasicSpareChunk&) = delete;

  void want() noexcept {
    std::uintptr_t state = kNone;
    state_.compare_exchange_strong(state, kWanted, std::memory_order_relaxed);
  }
  // The chunk that was brought; none if none was. Nobody wants one afterwards.
  [[nodiscard]] Hold take() noexcept {
    const std::uintptr_t state = state_.exchange(kNone, std::memory_order_acquire);
    return Hold(state > kComing ? reinterpret_cast<typename Hold::Chunk*>(state) : nullptr);
  }
  // Brings one if it is wanted. To be called without the lock.
  void provide() noexcept {
    if (state_.load(std::memory_order_relaxed) == kWanted) bring();
  }

 private:
  // What is no chunk's address.
  static constexpr std::uintptr_t kNone = 0;
  static constexpr std::uintptr_t kWanted = 1;
  static constexpr std::uintptr_t kComing = 2;  // one thread alone brings it
  [[gnu::noinline]] void bring() noexcept;

  typename Processors::template Atomic<std::uintptr_t> state_{kNone};
};

template <class Processors>
void BasicSpareChunk<Processors>::bring() noexcept {
  std::uintptr_t state = kWanted;
  if (!state_.compare_exchange_strong(state, kComing, std::memory_order_relaxed)) return;
  Hold chunk = Hold::make();
  if (chunk) chunk.touch();
  typename Hold::Chunk* const brought = chunk.release();
  // Without memory nobody tries again before the ring itself does.
  const std::uintptr_t next = brought == nullptr ? kNone : reinterpret_cast<std::uintptr_t>(brought);
  state = kComing;
  // The ring may not want it any more: history was turned off.
  if (!state_.compare_exchange_strong(state, next, std::memory_order_release, std::memory_order_relaxed))
    Hold(brought).reset();
}

using SpareChunk = BasicSpareChunk<HostAtomics>;

}  // namespace cistern
