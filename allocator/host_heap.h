#pragma once

// HostHeap: memory that the host and all devices reach, page-locked or managed. Blocks are cut from segments and grown
// together as a device's are; but nobody owns a free block, and one that streams use is free only when all of them are
// done.
//
// Small blocks (host_sizes.h) are cut from segments of 2 MiB, larger ones from segments of their own size, which
// smaller ones may be cut from later. host_heap.cpp has requests and frees, host_frees.cpp what waits for streams and
// graphs, host_cache.cpp what comes from the driver and goes back.
//
// Thread safety: any public member may be called from any thread. One lock, and none is held across a driver call: who
// asks events and who gives memory back says so in a flag.

#include <cistern/error.h>
#include <cistern/host_allocator.h>

#include "allocator/block_arena.h"
#include "allocator/block_cuts.h"
#include "allocator/block_map.h"
#include "allocator/block_pool.h"
#include "allocator/event_pools.h"
#include "allocator/growing_table.h"
#include "allocator/host_captures.h"
#include "allocator/host_source.h"
#include "allocator/pending_frees.h"
#include "allocator/segment_list.h"
#include "runtime/context.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

namespace cistern {

class HostHeap {
 public:
  // Whether a capture is under way that a wait for a device would break. Asked without the lock.
  using KnowsCapture = std::function<bool()>;
  // `contexts` and `event_pools` must outlive it. `knows_capture` is not asked any more once it ends.
  HostHeap(Contexts& contexts, EventPools& event_pools, HostMemoryKind kind, KnowsCapture knows_capture);
  // Waits for what streams do with freed blocks and gives everything back, live blocks too. Never throws.
  ~HostHeap();
  HostHeap(const HostHeap&) = delete;
  HostHeap& operator=(const HostHeap&) = delete;

  // See cistern::allocate_host. `device` is an index.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment, int device);
  enum class Freed { done, no_block, other_size };
  // Nothing is freed but with `done`. `bytes`, if given, must be what was asked for; else `requested` has that.
  [[nodiscard]] Freed free(std::uint64_t address, std::optional<std::size_t> bytes, std::size_t* requested) noexcept;
  [[nodiscard]] bool record_use(std::uint64_t address, StreamUse use);
  void empty_cache();

  void set_source(const HostSourceOptions& options) noexcept;
  [[nodiscard]] HostMemoryStats stats() const;
  void reset_peaks() noexcept;
  void reset_accumulated() noexcept;
  // Verifies the invariants, O(blocks): throws std::logic_error naming the first that fails.
  void check() const;

  void lock_for_fork() { mutex_.lock(); }
  void unlock_after_fork() { mutex_.unlock(); }

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;
  struct Request {
    std::size_t bytes = 0;
    std::size_t rounded = 0;
    std::size_t segment_bytes = 0;
    PoolKind kind = PoolKind::small;
    int device = 0;
  };

  [[nodiscard]] static Request make_request(std::size_t bytes, std::size_t alignment, int device);
  [[nodiscard]] BlockPool& pool_of(PoolKind kind) noexcept { return kind == PoolKind::small ? small_ : large_; }
  [[nodiscard]] Block* take(const Request& request) { return take_from(pool_of(request.kind), request); }
  [[nodiscard]] Block* take_from(BlockPool& pool, const Request& request);
  [[nodiscard]] Block* take_pages_for_class(const Request& request);
  [[nodiscard]] Block* serve_miss(const Request& request, Lock& lock);

  // host_frees.cpp
  CUresult guard(Block* block, Lock& lock) noexcept;
  [[nodiscard]] CUresult guard_use(const StreamUse& use, Block* block, Lock& lock) noexcept;
  [[nodiscard]] CUresult wait_for(const PendingFrees::Entry& entry) noexcept;
  [[nodiscard]] CUresult query(const PendingFrees::Entry& entry) noexcept;
  void complete(Block* block) noexcept;
  void end_use(Block* block) noexcept;
  void end_captured_uses() noexcept;
  void retry_unguarded(Lock& lock);
  void poll(Lock& lock);
  [[nodiscard]] CUresult poll_once(bool* ended, Lock& lock) noexcept;
  void wait_for_all(Lock& lock);
  [[nodiscard]] bool keep_for_graph(std::uint64_t address, const StreamUse& use);
  [[nodiscard]] bool is_captured(const StreamUse& use) const;

  // host_cache.cpp
  [[nodiscard]] CUresult add_segment(const Request& request, DriverEntryId* failed, Lock& lock);
  void release_cached(Lock& lock);
  [[nodiscard]] SegmentList take_cached() noexcept;
  [[nodiscard]] CUresult release(const Segment& segment, int device, DriverEntryId* failed) noexcept;
  [[nodiscard]] OutOfMemoryReport report_of(const Request& request) const noexcept;
  [[noreturn]] void refuse(const Request& request, CUresult refusal, DriverEntryId failed, Lock& lock);
  void forget(Segment* segment) noexcept;

  Contexts& contexts_;
  const DriverApi& api_;
  EventPools& event_pools_;
  const HostMemoryKind kind_;
  KnowsCapture knows_capture_;
  HostSource source_;
  HostCaptures captures_;

  mutable std::mutex mutex_;
  // All below is guarded by mutex_.
  HostSourceOptions source_options_;
  BlockArena arena_;
  BlockMap live_;
  GrowingTable<BlockPool::Trees> trees_{2};
  BlockPool small_{PoolKind::small, trees_[0]};
  BlockPool large_{PoolKind::large, trees_[1]};
  PendingFrees pending_;
  Block* unguarded_ = nullptr;  // freed, but the driver refused an event for some of their uses; linked by `left`
  Segment* segments_ = nullptr;
  HostMemoryStats stats_;
  int home_device_ = 0;  // whose context gives memory back: that of the first segment
  // A thread asks events, waits for them, or gives segments back, without the lock.
  bool is_polling_ = false;
  int releases_in_flight_ = 0;
  std::condition_variable changed_;
};

}  // namespace cistern
