#pragma once

// HistoryRing: the newest events of one device, in chunks that come as they are needed.
//
// Not thread-safe: the heap that writes holds its lock around every call.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

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

class HistoryRing {
 public:
  // Holds nothing: next() is nullptr.
  HistoryRing() = default;
  // Holds at most `capacity` entries. Has memory for `prepared` of them, and for all of a ring of
  // up to a million; a larger one takes more as it grows. Throws std::bad_alloc.
  explicit HistoryRing(std::size_t capacity, std::size_t prepared = 0);
  // The place of the next event, or nullptr if there is no memory for the first. What it holds
  // is an older event if is_full(), asked afterwards, and nothing otherwise.
  [[nodiscard]] HistoryEntry* next() noexcept {
    if (cursor_ == chunk_end_ && !advance()) return nullptr;
    return cursor_++;
  }
  // Whether entries are overwritten.
  [[nodiscard]] bool is_full() const noexcept { return full_; }
  [[nodiscard]] std::size_t size() const noexcept { return full_ ? in_use_ : written(); }
  // Entries after which it overwrites; less than its capacity if there was no memory to grow.
  [[nodiscard]] std::size_t limit() const noexcept { return full_ ? in_use_ : capacity_; }

  // Calls visit(entry), oldest first.
  template <class Visit>
  void for_each(Visit&& visit) const {
    const std::size_t count = size();
    std::size_t place = full_ ? written() % count : 0;
    for (std::size_t i = 0; i < count; ++i) {
      visit(at(place));
      if (++place == count) place = 0;
    }
  }
  // The same into `entries`, which has size() elements.
  void copy_to(HistoryEntry* entries) const noexcept;

 private:
  static constexpr std::size_t kChunk = 8192;
  static constexpr std::size_t kPrepared = std::size_t{1} << 20;
  using Chunk = std::unique_ptr<HistoryEntry[]>;

  [[nodiscard]] const HistoryEntry& at(std::size_t place) const noexcept {
    return chunks_[place / kChunk][place % kChunk];
  }
  // Entries before the cursor, from the beginning of the first chunk.
  [[nodiscard]] std::size_t written() const noexcept {
    return chunks_.empty() ? 0 : chunk_ * kChunk + static_cast<std::size_t>(cursor_ - chunks_[chunk_].get());
  }
  [[nodiscard]] bool advance() noexcept;
  [[nodiscard]] bool grow() noexcept;
  void enter(std::size_t chunk) noexcept;
  [[nodiscard]] static std::size_t chunks_for(std::size_t entries) noexcept {
    return entries / kChunk + (entries % kChunk != 0 ? 1 : 0);
  }

  std::vector<Chunk> chunks_;
  std::size_t chunk_ = 0;  // that is written to
  HistoryEntry* cursor_ = nullptr;
  HistoryEntry* chunk_end_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t in_use_ = 0;  // while full: of how many entries the ring is
  bool full_ = false;
};

}  // namespace cistern
