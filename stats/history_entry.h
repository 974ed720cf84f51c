#pragma once

// HistoryEntry: one event of a device's history, and the chunks that hold them. O(1), but to touch a chunk.

#include "stats/host_atomics.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cistern {

// One event, as small as it can be: it is written with every allocation and free.
struct HistoryEntry {
  std::uint64_t ticks;  // see TickClock
  std::uint64_t place;  // see address() and action()
  std::int64_t size;
  std::int64_t stream;  // as SegmentInfo::stream
  std::int64_t pool;    // see encode_pool
  std::uint32_t stack;  // of the stack table, which counts it; 0: none
  std::uint16_t text;   // user metadata, likewise
  std::uint16_t tag;    // 0: none

  // Of the block, segment or range; of an out-of-memory the driver's free bytes. Neither has the
  // upper eight bits, which are the action's: a TraceAction, or kFreed.
  [[nodiscard]] std::uint64_t address() const noexcept { return place & ((std::uint64_t{1} << 56) - 1); }
  [[nodiscard]] std::uint64_t action() const noexcept { return place >> 56; }
};
static_assert(sizeof(HistoryEntry) == 48, "what docs/statistics.md says that an entry takes");

// A free that was complete at once: free_requested and free_completed in one entry.
inline constexpr std::uint64_t kFreed = 64;

// Entries that come and go together. Pages of its own, not initialised: those that are not written cost nothing.
template <class Processors>
struct BasicHistoryChunk {
  // Small enough that a copy of one is soon made (98 KB), and large enough that a ring of a million has few.
  static constexpr std::size_t kEntries = 2048;

  template <class T>
  using Atomic = typename Processors::template Atomic<T>;
  Atomic<std::uint32_t> holders{1};
  Atomic<std::uint32_t> fillers{0};  // threads that write to places of their own, without the ring's lock
  HistoryEntry entries[kEntries];

  // Mapped: null if there is no host memory. O(1), a system call.
  [[nodiscard]] static BasicHistoryChunk* map() noexcept;
  static void unmap(BasicHistoryChunk* chunk) noexcept;
};

using HistoryChunk = BasicHistoryChunk<HostAtomics>;
template <>
HistoryChunk* HistoryChunk::map() noexcept;
template <>
void HistoryChunk::unmap(HistoryChunk* chunk) noexcept;

// A chunk that is held: by a ring, and by snapshots that are being described. The last holder frees it.
//
// Thread safety: different holders of one chunk may be used and destroyed by different threads. share() and
// is_shared() are for the ring's, under the heap's lock: what it finds unshared stays so.
template <class Processors>
class BasicChunkHold {
 public:
  using Chunk = BasicHistoryChunk<Processors>;

  BasicChunkHold() = default;
  // Takes it over; null is none.
  explicit BasicChunkHold(Chunk* chunk) noexcept : chunk_(chunk) {}
  BasicChunkHold(BasicChunkHold&& other) noexcept : chunk_(std::exchange(other.chunk_, nullptr)) {}
  BasicChunkHold& operator=(BasicChunkHold&& other) noexcept {
    std::swap(chunk_, other.chunk_);
    other.reset();
    return *this;
  }
  ~BasicChunkHold() { reset(); }

  // A new one; none if there is no host memory.
  [[nodiscard]] static BasicChunkHold make() noexcept { return BasicChunkHold(Chunk::map()); }
  explicit operator bool() const noexcept { return chunk_ != nullptr; }
  [[nodiscard]] HistoryEntry* entries() const noexcept { return chunk_->entries; }
  [[nodiscard]] BasicChunkHold share() const noexcept {
    chunk_->holders.fetch_add(1, std::memory_order_relaxed);
    return BasicChunkHold(chunk_);
  }
  // Whether somebody else reads it: then it must not be written. Sees what others did before they let go.
  [[nodiscard]] bool is_shared() const noexcept { return chunk_->holders.load(std::memory_order_acquire) != 1; }
  // A thread begins and ends to fill places that it has claimed, the first under the ring's lock.
  [[nodiscard]] Chunk* begin_filling() const noexcept {
    chunk_->fillers.fetch_add(1, std::memory_order_relaxed);
    return chunk_;
  }
  static void end_filling(Chunk* chunk) noexcept { chunk->fillers.fetch_sub(1, std::memory_order_release); }
  // Until nobody does. They ask for no lock meanwhile.
  void await_fillers() const noexcept {
    for (unsigned round = 0; chunk_->fillers.load(std::memory_order_acquire) != 0; ++round) Processors::wait(round);
  }
  // Makes the memory of the first `entries` be there: a page that is touched first under a lock keeps others waiting.
  void touch(std::size_t entries = Chunk::kEntries) const noexcept {
    constexpr std::size_t kHostPage = 4096;
    for (std::size_t i = 0; i < entries; i += kHostPage / sizeof(HistoryEntry)) chunk_->entries[i].ticks = 0;
  }
  // Gives it to whoever takes it over.
  [[nodiscard]] Chunk* release() noexcept { return std::exchange(chunk_, nullptr); }
  void reset() noexcept {
    Chunk* chunk = release();
    if (chunk != nullptr && chunk->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) Chunk::unmap(chunk);
  }

 private:
  Chunk* chunk_ = nullptr;
};

using ChunkHold = BasicChunkHold<HostAtomics>;

}  // namespace cistern
