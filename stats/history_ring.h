#pragma once

// HistoryRing: the newest events of one device, in chunks that come as they are needed.
//
// A snapshot shares the chunks that are not written to now, and copies one: what it holds stays as it
// is, since the ring replaces a chunk that is shared before it writes there.
//
// Not thread-safe: for the locks of those who write see DeviceHistory; places that were claimed are filled without. A
// Cut is its owner's alone. O(1) an entry; a cut is O(chunks).

#include "stats/history_entry.h"
#include "stats/spare_chunk.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace cistern {

class HistoryRing {
 public:
  static constexpr std::size_t kChunk = HistoryChunk::kEntries;

  // Holds nothing: next() is nullptr.
  HistoryRing() = default;
  // Holds at most `capacity` entries. Has memory for `prepared` of them, and for all of a ring of
  // up to a million; a larger one takes more as it grows. Throws std::bad_alloc.
  explicit HistoryRing(std::size_t capacity, std::size_t prepared = 0);
  // A ring that was moved from holds nothing.
  HistoryRing(HistoryRing&& other) noexcept { swap(other); }
  HistoryRing& operator=(HistoryRing&& other) noexcept {
    HistoryRing moved(std::move(other));
    swap(moved);
    return *this;
  }
  void swap(HistoryRing& other) noexcept;

  // The place of the next event, or nullptr if there is no memory for it: for the first, or for a copy
  // of what a snapshot reads. What it holds is an older event if is_full(), asked afterwards, and
  // nothing otherwise.
  [[nodiscard]] HistoryEntry* next(SpareChunk& spare) noexcept {
    if (cursor_ == chunk_end_ && !advance(spare)) return nullptr;
    return cursor_++;
  }
  // Whether next() is a place as it stands. Then next_in_chunk() is the same.
  [[nodiscard]] bool has_next() const noexcept { return cursor_ != chunk_end_; }
  [[nodiscard]] HistoryEntry* next_in_chunk() noexcept { return cursor_++; }
  // Places for the next events that their owner fills later, while others write behind them: before any of the
  // ring's readers looks. None if the chunk that is written to has not so many left. What they hold is as for next().
  struct Claim {
    HistoryEntry* first = nullptr;  // null: none
    HistoryChunk* chunk = nullptr;
  };
  [[nodiscard]] Claim claim(std::size_t count) noexcept {
    if (static_cast<std::size_t>(chunk_end_ - cursor_) < count) return {};
    HistoryEntry* const first = cursor_;
    cursor_ += count;
    return {first, chunks_[chunk_].begin_filling()};
  }
  // Whether entries are overwritten.
  [[nodiscard]] bool is_full() const noexcept { return full_; }
  [[nodiscard]] std::size_t size() const noexcept { return full_ ? in_use_ : written(); }
  // Entries after which it overwrites; less than its capacity if there was no memory to grow.
  [[nodiscard]] std::size_t limit() const noexcept { return full_ ? in_use_ : capacity_; }
  // Whether a chunk will have to be there when this one is full.
  [[nodiscard]] bool awaits_chunk() const noexcept;

  // Takes over what `other`, which is not full, holds, and goes on from there, where this ring has room
  // for its chunks; `other` keeps those that neither needs. False, with both unchanged, if it has not.
  // Requires: nothing was written here. O(chunks).
  [[nodiscard]] bool continue_from(HistoryRing& other) noexcept;
  // Changes after how many entries it overwrites. Requires: it is not full, and holds no more.
  void set_capacity(std::size_t capacity) noexcept;

  // Requires: place < size(). Not in order of age.
  [[nodiscard]] const HistoryEntry& at(std::size_t place) const noexcept {
    return chunks_[place / kChunk].entries()[place % kChunk];
  }
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

  // All entries as they were at one moment.
  class Cut {
   public:
    // Memory for a cut of a ring of so many entries, so that nothing is asked for under the lock.
    // Throws std::bad_alloc.
    void reserve(std::size_t entries);
    [[nodiscard]] bool has_room_for(std::size_t entries) const noexcept {
      return entries == 0 || (current_ && runs_.capacity() >= runs_for(entries));
    }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    // Calls visit(entry), oldest first.
    template <class Visit>
    void for_each(Visit&& visit) const {
      for (const Run& run : runs_)
        for (std::size_t i = 0; i < run.count; ++i) visit(run.first[i]);
    }

   private:
    friend class HistoryRing;
    struct Run {
      ChunkHold chunk;  // none: of current_
      const HistoryEntry* first = nullptr;
      std::size_t count = 0;
    };
    // One more for what is copied, which is the oldest of a full ring and the newest.
    static std::size_t runs_for(std::size_t entries) noexcept { return chunks_for(entries) + 1; }
    void add(ChunkHold chunk, const HistoryEntry* first, std::size_t count) noexcept;

    std::vector<Run> runs_;
    ChunkHold current_;  // a copy of the chunk that is written to
    std::size_t size_ = 0;
  };
  // O(chunks), and a copy of one. Requires: the cut has room, and nothing in it.
  void cut_to(Cut& cut) const noexcept;

 private:
  static constexpr std::size_t kPrepared = std::size_t{1} << 20;

  // Entries before the cursor, from the beginning of the first chunk.
  [[nodiscard]] std::size_t written() const noexcept {
    return cursor_ == nullptr ? 0 : chunk_ * kChunk + static_cast<std::size_t>(cursor_ - chunks_[chunk_].entries());
  }
  // Entries that a chunk holds when the ring is at its limit.
  [[nodiscard]] std::size_t most_in(std::size_t chunk) const noexcept {
    return std::min(kChunk, limit() - chunk * kChunk);
  }
  [[nodiscard]] bool advance(SpareChunk& spare) noexcept;
  [[nodiscard]] bool grow(SpareChunk& spare) noexcept;
  [[nodiscard]] bool replace(std::size_t chunk, SpareChunk& spare) noexcept;
  void enter(std::size_t chunk) noexcept;
  [[nodiscard]] static std::size_t chunks_for(std::size_t entries) noexcept {
    return entries / kChunk + (entries % kChunk != 0 ? 1 : 0);
  }

  std::vector<ChunkHold> chunks_;
  std::size_t chunk_ = 0;  // that is written to
  HistoryEntry* cursor_ = nullptr;
  HistoryEntry* chunk_end_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t in_use_ = 0;  // while full: of how many entries the ring is
  bool full_ = false;
};

}  // namespace cistern
