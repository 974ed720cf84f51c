#pragma once

// The private pools of one heap: memory set apart for graphs and for users' MemPools.
//
// A pool lives while something refers to it: uses (graphs, objects, guards), segments, requests
// that are being served, recordings, pools whose parent it is.
// Not thread-safe: the owning DeviceAllocator holds its lock around every call.

#include <cistern/mem_pool.h>

#include "allocator/block.h"
#include "allocator/retired.h"
#include "allocator/stream_pools.h"
#include "stats/recorder.h"

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

namespace cistern {

// What a MemPool asks of its pool.
struct PrivatePoolSettings {
  bool use_on_oom = false;
  bool no_split = false;
  // Gives its memory back by itself when it has no use left; a pool of captures waits for the
  // next full flush, as in PyTorch.
  bool ends_by_itself = false;
  std::shared_ptr<void> owner;
};

struct PrivatePool {
  PrivatePool(PoolId pool_id, StreamHeapArena& arena) : id(pool_id), streams(arena, this) {}

  const PoolId id;
  StreamPools streams;
  Recorder recorder;  // of this pool's share; without retries, failures and synchronisations
  // What it has reserved, once more: reset with the device's figures, not with the pool's own.
  Recorder reserved;
  PrivatePoolSettings settings;
  Retired::Owners owner;  // the settings' one, if any
  PrivatePool* parent = nullptr;
  std::size_t uses = 0;        // 0: freeable
  std::size_t dependents = 0;  // recordings, and pools whose parent it is

  [[nodiscard]] bool is_freeable() const { return uses == 0; }
  void segment_arrived(const Segment& segment) {
    for (Recorder* each : {&recorder, &reserved})
      each->segment_allocated(segment.kind, static_cast<std::int64_t>(segment.bytes), segment.oversize);
  }
  void segment_left(const Segment& segment) {
    for (Recorder* each : {&recorder, &reserved})
      each->segment_freed(segment.kind, static_cast<std::int64_t>(segment.bytes), segment.oversize);
  }
  // The same for pages of expandable segments.
  void pages_arrived(PoolKind kind, std::int64_t bytes) {
    for (Recorder* each : {&recorder, &reserved}) each->range_mapped(kind, bytes);
  }
  void pages_left(PoolKind kind, std::int64_t bytes) {
    for (Recorder* each : {&recorder, &reserved}) each->range_unmapped(kind, bytes);
  }
  [[nodiscard]] bool is_referenced() const;
};

class PrivatePools {
 public:
  explicit PrivatePools(StreamHeapArena& arena) : arena_(arena) {}
  [[nodiscard]] bool empty() const { return pools_.empty(); }
  // The pool of that id, or nullptr.
  [[nodiscard]] PrivatePool* find(PoolId id) const;
  // Makes a pool without a use. Requires: there is none of that id. Throws std::bad_alloc.
  [[nodiscard]] PrivatePool& add(PoolId id);
  // Ends the pools that nothing refers to, and streams' parts of pools that are empty. What
  // their owners kept is put into `retired`, to be let go without the lock.
  void drop_unreferenced(Retired& retired) noexcept;
  // The same of one pool alone, and of those above it.
  void drop_if_unreferenced(PrivatePool& pool, Retired& retired) noexcept;

  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [id, pool] : pools_) visit(*pool);
  }

 private:
  using Pools = std::map<PoolId, std::unique_ptr<PrivatePool>>;
  // Returns the place behind it. Requires: nothing refers to it.
  Pools::iterator drop(Pools::iterator place, Retired& retired) noexcept;

  StreamHeapArena& arena_;
  Pools pools_;
};

// Throws InvalidArgument unless the id names a private pool.
void require_private(PoolId id);

}  // namespace cistern
