#pragma once

// HeapState: what one device's heap has, and its lock. It decides nothing: what is done with it is in the classes that
// stand on it, each of which knows those below it alone:
//
//   HeapState     what there is
//   HeapReports   what the heap tells of itself
//   HeapBlocks    a block's way into use and back, by who has the heap's lock
//   PairHits      a block that comes and goes alone, with the lock of its stream, at the door
//   StreamHits    a way into use and back with the lock of a stream alone
//   DeviceAllocator  the walk from a request to a block and back, the ladder, memory from the driver and to it
//
// Not thread-safe: guarded by `mutex_`, but for what says otherwise.

#include <cistern/allocator.h>

#include "allocator/address_range.h"
#include "allocator/awake_streams.h"
#include "allocator/block_arena.h"
#include "allocator/block_map.h"
#include "allocator/brief_mutex.h"
#include "allocator/budgets.h"
#include "allocator/captured_frees.h"
#include "allocator/event_pools.h"
#include "allocator/heap_mutex.h"
#include "allocator/observers.h"
#include "allocator/page_source.h"
#include "allocator/paged_memory.h"
#include "allocator/pending_frees.h"
#include "allocator/pool_routing.h"
#include "allocator/private_pools.h"
#include "allocator/search_counts.h"
#include "allocator/segment_source.h"
#include "allocator/shared_counts.h"
#include "allocator/size_policy.h"
#include "allocator/step_grants.h"
#include "allocator/stream_heap.h"
#include "allocator/stream_heap_arena.h"
#include "allocator/stream_ordered_source.h"
#include "allocator/stream_pools.h"
#include "runtime/context.h"
#include "stats/history.h"
#include "stats/recorder.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cistern {

class SnapshotSource;
class StreamHits;

// What the heaps of one allocator share; all of it outlives them.
struct HeapSurroundings {
  Contexts& contexts;
  EventPools& event_pools;
  Observers& observers;
  SnapshotSource& snapshots;
};

struct HeapState {
  // `heap` is what this becomes a part of. Throws DriverError.
  HeapState(StreamHits& heap, const HeapSurroundings& surroundings, int device, const AllocatorOptions& options);
  HeapState(const HeapState&) = delete;
  HeapState& operator=(const HeapState&) = delete;

  // The heap's lock, and on whose account it is held.
  struct Lock : std::unique_lock<HeapMutex> {
    using std::unique_lock<HeapMutex>::unique_lock;
    StackId stack = kNoStackId;  // of the request; none: entries carry the allocation's
  };
  // Holds the heap's lock for a public call, and after it lets go what was retired under it.
  class Section {
   public:
    explicit Section(HeapState& heap) : lock(heap.provided_mutex()), heap_(heap) {}
    // On the account of the request that gathered the stack.
    Section(HeapState& heap, const GatheredStack& stack) : Section(heap) {
      if (stack.get().depth == 0) return;
      lock.stack = heap_.history_.intern(stack.get());
      if (lock.stack != kNoStackId) ++heap_.requests_with_stacks_;
    }
    ~Section() {
      if (lock.owns_lock() && lock.stack == kNoStackId && heap_.retired_.empty()) [[likely]]
        return;
      if (!lock.owns_lock()) lock.lock();
      if (lock.stack != kNoStackId) {
        heap_.history_.let_go(lock.stack);
        --heap_.requests_with_stacks_;
      }
      if (heap_.retired_.empty()) return;
      const Retired retired = std::exchange(heap_.retired_, Retired{});
      lock.unlock();
    }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;
    Lock lock;

   private:
    HeapState& heap_;
  };
  // The lock of a call that records, which first brings what the history will need, while it is not held.
  [[nodiscard]] HeapMutex& provided_mutex() noexcept {
    history_.provide();
    return mutex_;
  }
  struct Request {
    std::size_t bytes = 0;          // asked for
    std::size_t rounded = 0;        // the block's
    std::size_t segment_bytes = 0;  // what the driver would be asked for; of a request that may reach it
    TagId tag = kUntagged;          // of the thread that asks
    PoolKind kind = PoolKind::small;
    StreamHeap* pools = nullptr;
  };

  // Whether they need the device's virtual memory management.
  [[nodiscard]] static bool needs_pages(const AllocatorOptions& options) {
    return options.policy == Policy::expandable || options.policy == Policy::paged;
  }
  [[nodiscard]] static bool caches(Policy policy) { return policy != Policy::direct && policy != Policy::async; }
  [[nodiscard]] AllocatorOptions served(AllocatorOptions options) const;
  [[nodiscard]] bool follows_2_4() const { return options_.pytorch_rules == PytorchRules::v2_4; }
  [[nodiscard]] bool capture_under_way() const {
    return !routing_.empty() && routing_.capture_under_way(follows_2_4());
  }
  [[nodiscard]] bool collects_garbage() const {
    return limit_bytes_ != kUnlimited && options_.garbage_collection_threshold > 0.0;
  }
  [[nodiscard]] bool is_stream_ordered() const noexcept {
    return options_.policy == Policy::async && stream_ordered_ != nullptr;
  }
  [[nodiscard]] static std::int64_t as_signed(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }
  // For the heap's recorder; a pool's share is not told by tag and stream.
  [[nodiscard]] static Attribution attribution(const Block& block) {
    return {block.tag, &block.segment->owner->ledger};
  }
  // Where a live block is found: in its stream's map, if it is paged or found by page, else in the heap's.
  [[nodiscard]] BlockMap& map_of(const Block& block) {
    const Segment& segment = *block.segment;
    return segment.is_found_by_page || segment.is_paged() ? segment.owner->live : block_map_;
  }
  [[nodiscard]] CUcontext context_of(int device) const {
    return device == device_ ? context_ : surroundings_.contexts.primary(device);
  }
  [[nodiscard]] Block* find_live(std::uint64_t address) const noexcept {
    if (const StreamHeap* heap = stream_heaps_.find_by_address(address))
      if (Block* block = heap->live.find(address)) return block;
    return block_map_.find(address);
  }
  // Whether a call gathers its stack, and how much of it: asked once, before the lock is taken.
  struct Gathering {
    std::uint32_t packed = 0;
    [[nodiscard]] bool includes(HistoryContext least) const { return (packed & 0xff) >= static_cast<unsigned>(least); }
    [[nodiscard]] std::size_t most_frames() const { return packed >> 8; }
  };
  [[nodiscard]] Gathering gathering() const noexcept { return {gathering_.load(std::memory_order_relaxed)}; }
  [[nodiscard]] static TracePoint point_of(const Segment& segment, const Lock& lock) {
    return point_of(segment, lock.stack);
  }
  [[nodiscard]] static TracePoint point_of(const Block& block, const Lock& lock) { return point_of(block, lock.stack); }
  [[nodiscard]] static TracePoint point_of(const Segment& segment, StackId of_request);
  [[nodiscard]] static TracePoint point_of(const Block& block, StackId of_request);

  const DriverApi& api_;
  // Nobody wants to know on which thread a block is freed.
  const bool hands_back_ = api_.note_free.function == nullptr;
  HeapSurroundings surroundings_;
  const int device_;
  const CUcontext context_;
  std::size_t device_total_bytes_ = 0;
  DeviceSegmentSource source_;
  std::unique_ptr<StreamOrderedSource> stream_ordered_;  // once `async` is asked for; never goes again
  // Of expandable segments and paged memory: once they are asked for, where the device has them. Never go again.
  std::unique_ptr<PageSource> pages_;
  std::unique_ptr<PagedMemory> paged_;

  // The range that all segments ever lay in; written under the lock. They order nothing: who asks for an address was
  // given it by who knew of it, and whether there was any request is asked beside the first one as ever.
  std::atomic<std::uint64_t> lowest_address_{~std::uint64_t{0}};
  std::atomic<std::uint64_t> highest_address_{0};

  // The history's context and max_frames, as one so that they change together.
  std::atomic<std::uint32_t> gathering_{0};

  mutable HeapMutex mutex_;
  // All below is guarded by mutex_.
  AllocatorOptions options_;
  SizePolicy policy_;
  bool caches_;                // false: `direct` and `async`
  bool has_idle_ = false;      // under `async`: something is free that has not gone back
  bool plain_search_ = false;  // see choose_search
  bool serves_paged_ = false;  // the default pool is in paged memory
  bool decays_ = false;        // and what nobody used for long goes back
  bool claims_ = false;        // there requests take what waits for other streams' work, and wait themselves
  DeviceHistory history_;
  std::uint64_t requests_with_stacks_ = 0;  // under way, each of which holds its own
  Recorder recorder_;
  BlockArena arena_;
  BlockMap block_map_;  // of live blocks that no stream has in its own
  StreamHeapArena stream_heaps_{mutex_, recorder_};
  StreamPools pools_{stream_heaps_};  // the default pool
  PrivatePools private_pools_{stream_heaps_};
  // Nothing is under way that a hit, or a free with the lock of its stream alone, would have to look at:
  // streams may serve themselves. As of the last time that somebody had the lock; read under that of a stream.
  bool serves_by_stream_ = false;
  // Some pool is recorded to: it may take a request; frees of blocks that others used, and requests while any free
  // waits, are the heap's. As the former.
  bool is_recording_ = false;
  bool one_stream_serves_ = false;  // and the history is its own
  std::size_t most_steps_ = 0;      // that all streams together may write down (Recurrence)
  bool pairs_are_plain_ = false;    // see PairHits
  // Each search counts, and each free of a whole segment notes how many there were. May be read without any lock, and
  // is as good then as it was a moment ago.
  std::atomic<bool> ages_segments_{false};
  // Each hit and each free counts by itself, with its tag or the age of its segment: then none in a segment stands.
  bool sees_each_ = false;
  bool follows_steps_ = true;
  bool picks_plainly_ = false;  // the best fit serves, if any does, and no search counts
  // Away from what hits read and nobody changes.
  alignas(64) AwakeStreams awake_;
  StepGrants granted_steps_;
  // Streams wake or sleep, or threads allocate from others, since it was decided who leaves frees.
  std::atomic<bool> leaving_is_due_ = false;
  // Of streams that serve themselves: one at a time takes places in the history. Away from what hits read.
  alignas(64) BriefMutex staged_mutex_;
  // Of streams that serve themselves from paged memory, which is one for all: one at a time has its records. Behind the
  // stream's.
  BiasedMutex paged_mutex_;
  SharedCounts shared_counts_;  // behind that
  PoolRouting routing_;
  std::uint64_t guards_ = 0;  // made so far
  bool leftovers_ = false;    // a MemPool without a use may have free segments
  Budgets budgets_;
  PendingFrees pending_;
  CUresult failed_query_ = CUDA_SUCCESS;  // of a stream that asked by itself: the next request that polls tells of it
  // Frees without their events: refused by the driver, or put off by a capture; linked by `left`.
  Block* unrecorded_frees_ = nullptr;
  Block* last_unrecorded_free_ = nullptr;  // of that list
  CapturedFrees captured_frees_;           // of that list, what its capture may have again
  Retired retired_;
  Segment* segments_ = nullptr;                // all of them, newest first
  AddressRange* ranges_ = nullptr;             // of expandable segments, by address
  std::size_t mapped_pages_ = 0;               // of those, and on their way
  std::unique_ptr<AddressRange> spare_range_;  // and host memory for one more, in the end
  PageSource::Room spare_handles_;
  std::vector<CUdevice> peers_;                   // that may use them; the same while a map is under way
  int range_operations_ = 0;                      // maps and unmaps under way, with the lock given up
  bool grants_access_ = false;                    // and none may begin: access is being given
  bool out_of_addresses_ = false;                 // as of the last range that was asked for
  std::uint64_t requests_without_addresses_ = 0;  // for paged memory: segments served them
  std::size_t held_bytes_ = 0;                    // of all segments
  std::size_t arriving_bytes_ = 0;                // asked of the driver by threads that gave the lock up
  double fraction_ = 1.0;
  std::size_t limit_bytes_ = kUnlimited;
  SearchCounts searches_;
  // Threads that are waiting for frees or giving segments back with the lock given up: a
  // request must not fail before they are done.
  int reclaims_in_flight_ = 0;
  std::condition_variable_any reclaimed_;
};

// What a transition of a block or segment is told with: on the request's account, or, if that
// brought no stack, its allocation's.
inline TracePoint HeapState::point_of(const Segment& segment, StackId of_request) {
  TracePoint at;
  at.address = segment.address;
  at.size = static_cast<std::int64_t>(segment.bytes);
  at.stream = stream_number(segment.stream);
  if (!segment.is_plain) {
    if (const PrivatePool* home = segment.owner->home) at.pool = encode_pool(home->id.first, home->id.second);
  }
  at.stack = of_request != kNoStackId ? of_request : segment.stack;
  return at;
}

inline TracePoint HeapState::point_of(const Block& block, StackId of_request) {
  TracePoint at = point_of(*block.segment, of_request);
  at.address = block.address;
  at.size = static_cast<std::int64_t>(block.requested);
  at.stack = of_request != kNoStackId ? of_request : block.stack;
  at.tag = block.tag;
  return at;
}

}  // namespace cistern
