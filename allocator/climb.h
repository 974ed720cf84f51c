#pragma once

// Climb: what a request holds while it climbs the ladder. Its stream's pools, which stay while the
// lock is given up; and the host memory that the rungs need, taken before the first of them, for
// when device memory runs out the host's may be gone as well.
//
// Not thread-safe: made, used and ended by one request under the heap's lock, which the end takes
// again if a rung threw without it.

#include "allocator/block_arena.h"
#include "allocator/heap_mutex.h"
#include "allocator/page_source.h"
#include "allocator/stream_pools.h"

#include <mutex>
#include <utility>

namespace cistern {

// Keeps a stream's pools while the lock is given up. Ends with the lock held.
class PoolReference {
 public:
  PoolReference(StreamHeap& pools, std::unique_lock<HeapMutex>& lock) : pools_(pools), lock_(lock) {
    ++pools_.references;
  }
  ~PoolReference() {
    if (!lock_.owns_lock()) lock_.lock();
    --pools_.references;
  }
  PoolReference(const PoolReference&) = delete;
  PoolReference& operator=(const PoolReference&) = delete;

 private:
  StreamHeap& pools_;
  std::unique_lock<HeapMutex>& lock_;
};

class Climb {
 public:
  // Throws std::bad_alloc, unchanged.
  Climb(StreamHeap& pools, BlockArena& arena, PageSource::Room& spare_handles, std::unique_lock<HeapMutex>& lock)
      : pools_(pools, lock), arena_(arena), spare_handles_(spare_handles), lock_(lock) {
    arena_.reserve(2);
    segment_ = arena_.take_segment();
    block_ = arena_.take_block();
    rest_ = arena_.take_block();
    if (!spare_handles_.empty()) handles.splice(handles.end(), spare_handles_, spare_handles_.begin());
  }
  ~Climb() {
    if (!lock_.owns_lock()) lock_.lock();
    spare_handles_.splice(spare_handles_.end(), handles);
    if (segment_ != nullptr) arena_.give_back(segment_);
    if (block_ != nullptr) arena_.give_back(block_);
    arena_.give_back(rest_);
  }
  Climb(const Climb&) = delete;
  Climb& operator=(const Climb&) = delete;

  // What describes memory that comes from the driver.
  struct Metadata {
    Segment* segment = nullptr;
    Block* block = nullptr;
  };
  // Throws std::bad_alloc, unchanged, if this is not the first that is kept.
  [[nodiscard]] Metadata take_metadata() {
    arena_.reserve(block_ == nullptr ? 1 : 0, segment_ == nullptr ? 1 : 0);
    refill();
    return {std::exchange(segment_, nullptr), std::exchange(block_, nullptr)};
  }
  // No memory came: another rung may bring some.
  void give_back(const Metadata& metadata) noexcept {
    if (metadata.segment != nullptr) arena_.give_back(metadata.segment);
    if (metadata.block != nullptr) arena_.give_back(metadata.block);
    refill();
  }

  // Of expandable segments' pages: what an earlier climb left.
  PageSource::Room handles;
  bool has_flushed = false;

 private:
  void refill() noexcept {
    if (segment_ == nullptr && arena_.has(0, 1)) segment_ = arena_.take_segment();
    if (block_ == nullptr && arena_.has(1, 0)) block_ = arena_.take_block();
  }

  PoolReference pools_;
  BlockArena& arena_;
  PageSource::Room& spare_handles_;
  std::unique_lock<HeapMutex>& lock_;
  Segment* segment_ = nullptr;
  Block* block_ = nullptr;
  Block* rest_ = nullptr;  // for what the request leaves of a block
};

}  // namespace cistern
