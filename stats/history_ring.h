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
#include <new>
#include <utility>
#include <vector>

namespace cistern {

template <class Processors>
class BasicHistoryRing {
 public:
  using Chunk = BasicHistoryChunk<Processors>;
  using Hold = BasicChunkHold<Processors>;
  using Spare = BasicSpareChunk<Processors>;
  static constexpr std::size_t kChunk = Chunk::kEntries;

  // Holds nothing: next() is nullptr.
  BasicHistoryRing() = default;
  // Holds at most `capacity` entries. Has memory for `prepared` of them, and for all of a ring of
  // up to a million; a larger one takes more as it grows. Throws std::bad_alloc.
  explicit BasicHistoryRing(std::size_t capacity, std::size_t prepared = 0);
  // A ring that was moved from holds nothing.
  BasicHistoryRing(BasicHistoryRing&& other) noexcept { swap(other); }
  BasicHistoryRing& operator=(BasicHistoryRing&& other) noexcept {
    BasicHistoryRing moved(std::move(other));
    swap(moved);
    return *this;
  }
  void swap(BasicHistoryRing& other) noexcept;

  // The place of the next event, or nullptr if there is no memory for it: for the first, or for a copy
  // of what a snapshot reads. What it holds is an older event if is_full(), asked afterwards, and
  // nothing otherwise.
  [[nodiscard]] HistoryEntry* next(Spare& spare) noexcept {
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
    Chunk* chunk = nullptr;
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
  [[nodiscard]] bool continue_from(BasicHistoryRing& other) noexcept;
  // Changes after how many entries it overwrites. Requires: not 0; it is not full, and holds no more.
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
    friend class BasicHistoryRing;
    struct Run {
      Hold chunk;  // none: of current_
      const HistoryEntry* first = nullptr;
      std::size_t count = 0;
    };
    // One more for what is copied, which is the oldest of a full ring and the newest.
    static std::size_t runs_for(std::size_t entries) noexcept { return chunks_for(entries) + 1; }
    void add(Hold chunk, const HistoryEntry* first, std::size_t count) noexcept;

    std::vector<Run> runs_;
    Hold current_;  // a copy of the chunk that is written to
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
  [[nodiscard]] bool advance(Spare& spare) noexcept;
  [[nodiscard]] bool grow(Spare& spare) noexcept;
  [[nodiscard]] bool replace(std::size_t chunk, Spare& spare) noexcept;
  void enter(std::size_t chunk) noexcept;
  [[nodiscard]] static Hold make_chunk();
  [[nodiscard]] static Hold brought_or_new(Spare& spare) noexcept;
  [[nodiscard]] static std::size_t chunks_for(std::size_t entries) noexcept {
    return entries / kChunk + (entries % kChunk != 0 ? 1 : 0);
  }

  std::vector<Hold> chunks_;
  std::size_t chunk_ = 0;  // that is written to
  HistoryEntry* cursor_ = nullptr;
  HistoryEntry* chunk_end_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t in_use_ = 0;  // while full: of how many entries the ring is
  bool full_ = false;
};

// Memory that must be there before the lock is taken, and so may not be had.
template <class Processors>
BasicChunkHold<Processors> BasicHistoryRing<Processors>::make_chunk() {
  Hold chunk = Hold::make();
  if (!chunk) throw std::bad_alloc();
  return chunk;
}

// In time, or by the ring itself: a call that fills chunks while it holds the lock (a flush that completes
// thousands of frees) cannot wait for others to bring them.
template <class Processors>
BasicChunkHold<Processors> BasicHistoryRing<Processors>::brought_or_new(Spare& spare) noexcept {
  Hold chunk = spare.take();
  return chunk ? std::move(chunk) : Hold::make();
}

template <class Processors>
BasicHistoryRing<Processors>::BasicHistoryRing(std::size_t capacity, std::size_t prepared) : capacity_(capacity) {
  const std::size_t count = chunks_for(std::min(capacity, std::max(prepared, kPrepared)));
  chunks_.reserve(count);
  // An unlimited ring begins with one.
  const std::size_t wanted = capacity > kPrepared ? chunks_for(std::max(prepared, std::size_t{1})) : count;
  while (chunks_.size() < wanted) chunks_.push_back(make_chunk());
  // What is about to be filled under the lock.
  for (std::size_t i = 0; i < std::min(wanted, chunks_for(prepared)); ++i) chunks_[i].touch();
  if (!chunks_.empty()) enter(0);
}

template <class Processors>
void BasicHistoryRing<Processors>::swap(BasicHistoryRing& other) noexcept {
  chunks_.swap(other.chunks_);
  std::swap(chunk_, other.chunk_);
  std::swap(cursor_, other.cursor_);
  std::swap(chunk_end_, other.chunk_end_);
  std::swap(capacity_, other.capacity_);
  std::swap(in_use_, other.in_use_);
  std::swap(full_, other.full_);
}

template <class Processors>
void BasicHistoryRing<Processors>::enter(std::size_t chunk) noexcept {
  chunk_ = chunk;
  cursor_ = chunks_[chunk].entries();
  chunk_end_ = cursor_ + most_in(chunk);
}

template <class Processors>
bool BasicHistoryRing<Processors>::awaits_chunk() const noexcept {
  if (chunks_.empty()) return false;
  const std::size_t next = chunk_ + 1;
  if (next * kChunk >= limit()) return chunks_[0].is_shared();
  return next >= chunks_.size() || chunks_[next].is_shared();
}

// At the end of a chunk: the next one, a new one, or the first again. What fails here is tried again with
// the next event.
template <class Processors>
bool BasicHistoryRing<Processors>::advance(Spare& spare) noexcept {
  std::size_t next = chunks_.empty() ? 0 : chunk_ + 1;
  if (next * kChunk >= limit() || (next >= chunks_.size() && !grow(spare))) {
    if (chunks_.empty()) return false;
    if (!full_) {
      // Without memory to grow, the ring stays as large as it is.
      in_use_ = written();
      full_ = true;
    }
    next = 0;
  }
  chunks_[next].await_fillers();
  if (chunks_[next].is_shared() && !replace(next, spare)) return false;
  enter(next);
  if (awaits_chunk()) spare.want();
  return true;
}

template <class Processors>
bool BasicHistoryRing<Processors>::grow(Spare& spare) noexcept {
  Hold chunk = brought_or_new(spare);
  if (!chunk) return false;
  try {
    chunks_.push_back(std::move(chunk));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// A snapshot goes on reading the chunk that was there.
template <class Processors>
bool BasicHistoryRing<Processors>::replace(std::size_t chunk, Spare& spare) noexcept {
  Hold fresh = brought_or_new(spare);
  if (!fresh) return false;
  std::copy_n(chunks_[chunk].entries(), most_in(chunk), fresh.entries());
  chunks_[chunk] = std::move(fresh);
  return true;
}

template <class Processors>
bool BasicHistoryRing<Processors>::continue_from(BasicHistoryRing& other) noexcept {
  const std::size_t used = other.chunks_.empty() ? 0 : other.chunk_ + 1;
  if (chunks_.capacity() < used) return false;
  if (used == 0) return true;
  for (std::size_t i = 0; i < used; ++i) {
    if (i == chunks_.size()) chunks_.emplace_back();
    std::swap(chunks_[i], other.chunks_[i]);
  }
  chunk_ = other.chunk_;
  cursor_ = other.cursor_;
  chunk_end_ = chunks_[chunk_].entries() + most_in(chunk_);
  other.chunk_ = other.capacity_ = 0;
  other.cursor_ = other.chunk_end_ = nullptr;
  return true;
}

template <class Processors>
void BasicHistoryRing<Processors>::set_capacity(std::size_t capacity) noexcept {
  capacity_ = capacity;
  if (!chunks_.empty()) chunk_end_ = chunks_[chunk_].entries() + most_in(chunk_);
}

template <class Processors>
void BasicHistoryRing<Processors>::Cut::reserve(std::size_t entries) {
  runs_.resize(runs_for(entries));  // and is touched
  runs_.clear();
  current_ = make_chunk();
  current_.touch(std::min(entries, kChunk));
}

template <class Processors>
void BasicHistoryRing<Processors>::Cut::add(Hold chunk, const HistoryEntry* first, std::size_t count) noexcept {
  if (count != 0) runs_.push_back({std::move(chunk), first, count});
}

template <class Processors>
void BasicHistoryRing<Processors>::cut_to(Cut& cut) const noexcept {
  const std::size_t count = size();
  cut.size_ = count;
  if (count == 0) return;
  const auto before = static_cast<std::size_t>(cursor_ - chunks_[chunk_].entries());
  const std::size_t all = full_ ? most_in(chunk_) : before;
  HistoryEntry* const copy = cut.current_.entries();
  std::copy_n(chunks_[chunk_].entries(), all, copy);
  const auto share = [&](std::size_t chunk) {
    cut.add(chunks_[chunk].share(), chunks_[chunk].entries(), std::min(kChunk, count - chunk * kChunk));
  };
  cut.add(Hold(), copy + before, all - before);
  if (full_)
    for (std::size_t chunk = chunk_ + 1; chunk < chunks_for(count); ++chunk) share(chunk);
  for (std::size_t chunk = 0; chunk < chunk_; ++chunk) share(chunk);
  cut.add(Hold(), copy, before);
}

using HistoryRing = BasicHistoryRing<HostAtomics>;
extern template class BasicHistoryRing<HostAtomics>;

}  // namespace cistern
