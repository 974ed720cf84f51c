#include "stats/history_ring.h"

#include <new>
#include <utility>

namespace cistern {
namespace {

// Memory that must be there before the lock is taken, and so may not be had.
ChunkHold make_chunk() {
  ChunkHold chunk = ChunkHold::make();
  if (!chunk) throw std::bad_alloc();
  return chunk;
}

// In time, or by the ring itself: a call that fills chunks while it holds the lock (a flush that completes
// thousands of frees) cannot wait for others to bring them.
ChunkHold brought_or_new(SpareChunk& spare) noexcept {
  ChunkHold chunk = spare.take();
  return chunk ? std::move(chunk) : ChunkHold::make();
}

}  // namespace

HistoryRing::HistoryRing(std::size_t capacity, std::size_t prepared) : capacity_(capacity) {
  const std::size_t count = chunks_for(std::min(capacity, std::max(prepared, kPrepared)));
  chunks_.reserve(count);
  // An unlimited ring begins with one.
  const std::size_t wanted = capacity > kPrepared ? chunks_for(std::max(prepared, std::size_t{1})) : count;
  while (chunks_.size() < wanted) chunks_.push_back(make_chunk());
  // What is about to be filled under the lock.
  for (std::size_t i = 0; i < std::min(wanted, chunks_for(prepared)); ++i) chunks_[i].touch();
  if (!chunks_.empty()) enter(0);
}

void HistoryRing::swap(HistoryRing& other) noexcept {
  chunks_.swap(other.chunks_);
  std::swap(chunk_, other.chunk_);
  std::swap(cursor_, other.cursor_);
  std::swap(chunk_end_, other.chunk_end_);
  std::swap(capacity_, other.capacity_);
  std::swap(in_use_, other.in_use_);
  std::swap(full_, other.full_);
}

void HistoryRing::enter(std::size_t chunk) noexcept {
  chunk_ = chunk;
  cursor_ = chunks_[chunk].entries();
  chunk_end_ = cursor_ + most_in(chunk);
}

bool HistoryRing::awaits_chunk() const noexcept {
  if (chunks_.empty()) return false;
  const std::size_t next = chunk_ + 1;
  if (next * kChunk >= limit()) return chunks_[0].is_shared();
  return next >= chunks_.size() || chunks_[next].is_shared();
}

// At the end of a chunk: the next one, a new one, or the first again. What fails here is tried again with
// the next event.
bool HistoryRing::advance(SpareChunk& spare) noexcept {
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

bool HistoryRing::grow(SpareChunk& spare) noexcept {
  ChunkHold chunk = brought_or_new(spare);
  if (!chunk) return false;
  try {
    chunks_.push_back(std::move(chunk));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// A snapshot goes on reading the chunk that was there.
bool HistoryRing::replace(std::size_t chunk, SpareChunk& spare) noexcept {
  ChunkHold fresh = brought_or_new(spare);
  if (!fresh) return false;
  std::copy_n(chunks_[chunk].entries(), most_in(chunk), fresh.entries());
  chunks_[chunk] = std::move(fresh);
  return true;
}

bool HistoryRing::continue_from(HistoryRing& other) noexcept {
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

void HistoryRing::set_capacity(std::size_t capacity) noexcept {
  capacity_ = capacity;
  if (!chunks_.empty()) chunk_end_ = chunks_[chunk_].entries() + most_in(chunk_);
}

void HistoryRing::Cut::reserve(std::size_t entries) {
  runs_.resize(runs_for(entries));  // and is touched
  runs_.clear();
  current_ = make_chunk();
  current_.touch(std::min(entries, kChunk));
}

void HistoryRing::Cut::add(ChunkHold chunk, const HistoryEntry* first, std::size_t count) noexcept {
  if (count != 0) runs_.push_back({std::move(chunk), first, count});
}

void HistoryRing::cut_to(Cut& cut) const noexcept {
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
  cut.add(ChunkHold(), copy + before, all - before);
  if (full_)
    for (std::size_t chunk = chunk_ + 1; chunk < chunks_for(count); ++chunk) share(chunk);
  for (std::size_t chunk = 0; chunk < chunk_; ++chunk) share(chunk);
  cut.add(ChunkHold(), copy, before);
}

}  // namespace cistern
