#pragma once

// Chunks of the history on processors that delay what they store: each is known by what became of it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "stats/history_entry.h"
#include "tests/allocator/delaying_processors.h"

namespace cistern::testing {

using DelayedChunk = BasicHistoryChunk<DelayingProcessors>;
using DelayedHold = BasicChunkHold<DelayingProcessors>;

class WatchedChunks {
 public:
  WatchedChunks() { current = this; }
  ~WatchedChunks() { current = nullptr; }
  WatchedChunks(const WatchedChunks&) = delete;
  WatchedChunks& operator=(const WatchedChunks&) = delete;

  [[nodiscard]] std::size_t mapped() const { return chunks_.size(); }
  [[nodiscard]] std::size_t live() const {
    return static_cast<std::size_t>(
        std::count_if(chunks_.begin(), chunks_.end(), [](const Chunk& chunk) { return chunk.times_unmapped == 0; }));
  }
  [[nodiscard]] bool is_live(const HistoryEntry* entries) const {
    return std::any_of(chunks_.begin(), chunks_.end(), [&](const Chunk& chunk) {
      return chunk.memory->entries == entries && chunk.times_unmapped == 0;
    });
  }
  // What was unmapped and is unmapped again; what is no chunk.
  [[nodiscard]] int wrong_unmaps() const { return wrong_unmaps_; }

  DelayedChunk* map() {
    chunks_.push_back({std::make_unique<DelayedChunk>(), 0});
    return chunks_.back().memory.get();
  }
  // Its memory stays as long as this, so that who still uses it does no harm.
  void unmap(const DelayedChunk* memory) {
    const auto chunk =
        std::find_if(chunks_.begin(), chunks_.end(), [&](const Chunk& each) { return each.memory.get() == memory; });
    if (chunk == chunks_.end() || chunk->times_unmapped++ != 0) ++wrong_unmaps_;
    if (when_unmapped) when_unmapped();
  }
  std::function<void()> when_unmapped;  // by who does it; may be empty

  static inline WatchedChunks* current = nullptr;

 private:
  struct Chunk {
    std::unique_ptr<DelayedChunk> memory;
    int times_unmapped;
  };
  std::vector<Chunk> chunks_;
  int wrong_unmaps_ = 0;
};

}  // namespace cistern::testing

namespace cistern {

template <>
inline testing::DelayedChunk* testing::DelayedChunk::map() noexcept {
  return testing::WatchedChunks::current->map();
}
template <>
inline void testing::DelayedChunk::unmap(testing::DelayedChunk* chunk) noexcept {
  testing::WatchedChunks::current->unmap(chunk);
}

}  // namespace cistern
