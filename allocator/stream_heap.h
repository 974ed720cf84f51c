#pragma once

// StreamHeap: what one heap has for one stream: its free blocks, its live ones by address, its part of
// the statistics, and a lock of its own for what concerns nobody else.
//
// Thread safety: guarded by its mutex, which who holds the heap's lock has, too (HeapMutex), but for what is
// atomic or says otherwise. What the heap alone changes (the last part) is read under either.

#include "allocator/awaited_frees.h"
#include "allocator/awake_streams.h"
#include "allocator/biased_mutex.h"
#include "allocator/block_map.h"
#include "allocator/block_pool.h"
#include "allocator/block_spares.h"
#include "allocator/followed_uses.h"
#include "allocator/lazy_free.h"
#include "allocator/left_frees.h"
#include "allocator/recurrence.h"
#include "allocator/returned_blocks.h"
#include "allocator/standing_use.h"
#include "allocator/thread_mark.h"
#include "allocator/use_nodes.h"
#include "runtime/event_pool.h"
#include "runtime/stream_access.h"
#include "stats/history_stage.h"
#include "stats/recorder.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace cistern {

struct PrivatePool;

// The last work of a stream that is over: its event, which goes back to its pool at the end.
struct StreamEnd {
  StreamEnd(EventPool& event_pool, CUevent last_event) : pool(event_pool), event(last_event) {}
  ~StreamEnd() {
    if (event != nullptr) pool.release(event);
  }
  StreamEnd(const StreamEnd&) = delete;
  StreamEnd& operator=(const StreamEnd&) = delete;

  EventPool& pool;
  CUevent event;  // null: the work is done
};

// What a stream's tables lie in, of which most streams never use most. Zeros, until they are used: so they may lie in
// pages that are not there yet.
struct StreamRoom {
  std::array<BlockPool::Trees, 2> trees;  // by kind of pool
  AwaitedFrees::Storage awaited;
  HistoryStage::Events staged;
};

// Lives as long as it has references: segments, and requests that are being served. Its storage lives as
// long as the heap (StreamHeapArena), so that a thread may come to lock it at any time.
struct StreamHeap {
  // The room outlives it.
  explicit StreamHeap(StreamRoom& room)
      : pools{BlockPool(PoolKind::small, room.trees[0]), BlockPool(PoolKind::large, room.trees[1])},
        awaited(room.awaited),
        stage(room.staged) {}

  BiasedMutex mutex;
  std::array<BlockPool, 2> pools;  // by kind
  BlockMap live;                   // of segments that are found by page, and of paged memory
  StreamLedger ledger;
  BlockSpares spares;
  UseNodes use_nodes;
  LazyFree lazy_free;
  StandingUse standing_use;  // of what lazy_free has
  StandingWorth standing_worth;
  Recurrence recurrence;
  FollowedUses followed_uses;
  LeftFrees left_frees;  // older than the lazy one
  AwaitedFrees awaited;
  HistoryStage stage;
  ReturnedBlocks returned;                            // by other threads than the one that allocates
  std::atomic<const ThreadMark*> allocates{nullptr};  // who did last
  std::atomic<bool> is_awake{false};                  // may serve with its own mutex alone; see StreamHeapArena
  std::atomic<AwakeStreams::Bits> awake_bit{0};       // 0: it sleeps
  bool counts_steps = false;                          // that are followed, each by itself
  std::int32_t paged_stream = -1;                     // its number in paged memory, if it has bytes there
  std::uint32_t hits_until_look = 0;                  // at the clock, while memory decays

  StreamIdentity stream;
  PrivatePool* home = nullptr;  // null: the default pool
  std::size_t references = 0;
  bool is_ended = false;  // the stream is over
  int waiters = 0;        // threads that wait for the stream with the lock given up
  // Of a stream that is over; null if no event could be recorded: then its segments go back to the
  // driver, which waits, and to nobody else.
  std::shared_ptr<StreamEnd> end;
  bool leaves_frees = false;         // in pages, for its next turn there: see StreamHits::consider_leaving
  bool is_locked_with_heap = false;  // from when the heap's lock is taken next
  bool wants_to_wake = false;        // then
  bool was_asked = false;            // since it was put to sleep
  bool has_served_alone = false;     // since the arena looked last
  std::uint64_t refused_at = 0;      // when it could not wake; see WakeCounts
  // The driver had none for its paged memory: segments serve beside it. Stays so.
  bool lacks_addresses = false;
  // Some of its segments' blocks are not found by page, although they are of the default pool. Stays so.
  bool has_hidden_segments = false;
  StreamHeap* next_unused = nullptr;

  // What is told of an address where a block of the stream begins, or began last: see StreamHeapArena.
  struct Guest {
    StreamHeap* of = nullptr;
    bool is_live = false;
  };
  const Guest guest{this, true};
  const Guest former_guest{this, false};

  [[nodiscard]] BlockPool& of(PoolKind kind) { return pools[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] const BlockPool& of(PoolKind kind) const { return pools[static_cast<std::size_t>(kind)]; }
};

}  // namespace cistern
