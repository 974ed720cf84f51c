#include "stats/history_ring.h"

#include <algorithm>
#include <new>
#include <utility>

namespace cistern {

HistoryRing::HistoryRing(std::size_t capacity, std::size_t prepared) : capacity_(capacity) {
  const std::size_t count = chunks_for(std::min(capacity, std::max(prepared, kPrepared)));
  chunks_.reserve(count);
  // An unlimited ring begins with one.
  const std::size_t wanted = capacity > kPrepared ? chunks_for(std::max(prepared, std::size_t{1})) : count;
  // Not initialised: pages that are not written cost nothing.
  while (chunks_.size() < wanted) chunks_.push_back(Chunk(new HistoryEntry[kChunk]));
  if (!chunks_.empty()) enter(0);
}

void HistoryRing::enter(std::size_t chunk) noexcept {
  chunk_ = chunk;
  cursor_ = chunks_[chunk].get();
  chunk_end_ = cursor_ + std::min(kChunk, limit() - chunk * kChunk);
}

// At the end of a chunk: the next one, a new one, or the first again.
bool HistoryRing::advance() noexcept {
  const std::size_t next = chunks_.empty() ? 0 : chunk_ + 1;
  if (next * kChunk < limit() && (next < chunks_.size() || grow())) {
    enter(next);
    return true;
  }
  if (chunks_.empty()) return false;
  if (!full_) {
    // Without memory to grow, the ring stays as large as it is.
    in_use_ = written();
    full_ = true;
  }
  enter(0);
  return true;
}

bool HistoryRing::grow() noexcept {
  try {
    chunks_.push_back(Chunk(new HistoryEntry[kChunk]));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void HistoryRing::copy_to(HistoryEntry* entries) const noexcept {
  const std::size_t count = size();
  for (std::size_t place = full_ ? written() % count : 0, done = 0; done < count;) {
    const std::size_t run = std::min({count - done, kChunk - place % kChunk, count - place});
    std::copy_n(&at(place), run, entries + done);
    done += run;
    place += run;
    if (place == count) place = 0;
  }
}

}  // namespace cistern
