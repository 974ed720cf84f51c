#include "stats/spare_chunk.h"

namespace cistern {

void SpareChunk::bring() noexcept {
  std::uintptr_t state = kWanted;
  if (!state_.compare_exchange_strong(state, kComing, std::memory_order_relaxed)) return;
  ChunkHold chunk = ChunkHold::make();
  if (chunk) chunk.touch();
  HistoryChunk* const brought = chunk.release();
  // Without memory nobody tries again before the ring itself does.
  const std::uintptr_t next = brought == nullptr ? kNone : reinterpret_cast<std::uintptr_t>(brought);
  state = kComing;
  // The ring may not want it any more: history was turned off.
  if (!state_.compare_exchange_strong(state, next, std::memory_order_release, std::memory_order_relaxed))
    ChunkHold(brought).reset();
}

}  // namespace cistern
