#pragma once

// The free blocks of every stream of one heap, by stream and pool.
//
// Not thread-safe: the owning DeviceAllocator holds its lock around every call.

#include "allocator/block_pool.h"
#include "runtime/stream_access.h"
#include "stats/recorder.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace cistern {

// The two pools of one stream. Lives as long as it has references: segments, and requests
// that are being served.
struct PoolPair {
  StreamIdentity stream;
  BlockPool small;
  BlockPool large;
  std::size_t references = 0;
  [[nodiscard]] BlockPool& of(PoolKind kind) { return kind == PoolKind::small ? small : large; }
};

class StreamPools {
 public:
  // The stream's pools, made when it has none. O(log streams). Throws std::bad_alloc.
  [[nodiscard]] PoolPair& of(const StreamIdentity& stream);
  // Forgets streams without references: their ids never come again.
  void drop_unreferenced();

  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& pool : pools_) visit(*pool);
  }

 private:
  std::vector<std::unique_ptr<PoolPair>> pools_;  // by ascending stream id
  PoolPair* last_ = nullptr;                      // of the last look-up: most come in runs
};

inline PoolPair& StreamPools::of(const StreamIdentity& stream) {
  if (last_ != nullptr && last_->stream.id == stream.id) return *last_;
  std::size_t low = 0;
  for (std::size_t high = pools_.size(); low < high;) {
    const std::size_t middle = low + (high - low) / 2;
    if (pools_[middle]->stream.id < stream.id)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == pools_.size() || pools_[low]->stream.id != stream.id) {
    auto pool = std::make_unique<PoolPair>();
    pool->stream = stream;
    pools_.insert(pools_.begin() + static_cast<std::ptrdiff_t>(low), std::move(pool));
  }
  last_ = pools_[low].get();
  return *last_;
}

inline void StreamPools::drop_unreferenced() {
  std::erase_if(pools_, [](const auto& pool) { return pool->references == 0; });
  last_ = nullptr;
}

}  // namespace cistern
