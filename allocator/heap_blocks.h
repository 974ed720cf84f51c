#pragma once

// HeapBlocks: a block's way into use and back, by who has the heap's lock: found among the free ones, cut and handed
// out; noted as used by other streams; freed at once, or behind their events (guarded_free.cpp), or within a capture
// (capture_reuse.cpp); and free again, merged with its neighbours. Where new memory comes from is no concern of it.
//
// Requires, of all: the heap's lock. Where it is given, it may be given up and taken again.

#include "allocator/block_cuts.h"
#include "allocator/driver_scope.h"
#include "allocator/heap_reports.h"

#include <cstddef>
#include <cstdint>
#include <unordered_set>

namespace cistern {

class HeapBlocks : public HeapReports {
 protected:
  using HeapReports::HeapReports;
  ~HeapBlocks() = default;

  // heap_blocks.cpp
  [[nodiscard]] Block* find_free_block(const Request& request);
  [[nodiscard]] Block* take_free_block(const Request& request);
  [[nodiscard]] Block* hand_out(Block* block, const Request& request, const Lock& lock);
  [[nodiscard]] Block* hand_out_overflow(Block* block, const Request& request, const Lock& lock);
  [[nodiscard]] Block* take_into_use(Block* free, const Request& request, std::size_t bytes, const Lock& lock);
  void split(Block* block, std::size_t bytes);
  [[nodiscard]] bool should_split(const Block& block, const Request& request) const {
    return policy_.should_split(block.bytes, request.rounded, request.kind) && !is_kept_whole(block);
  }
  [[nodiscard]] static bool is_kept_whole(const Block& block) {
    const Segment& segment = *block.segment;
    return !segment.is_plain && segment.owner->home != nullptr && segment.owner->home->settings.no_split;
  }
  [[nodiscard]] Block* settle(Block* block);
  void note_leftovers(const PrivatePool& home, const Block& free) noexcept {
    if (home.is_freeable() && home.settings.ends_by_itself && !free.is_split()) leftovers_ = true;
  }
  // Whole pages of an expandable segment can always be given back: no block of one is an inactive split. O(1).
  [[nodiscard]] bool counts_splits(const Block& block) const noexcept {
    return plain_search_ || block.segment->range == nullptr;
  }
  [[nodiscard]] InactiveSplitChange splits_by_freeing(const Block& block, const FreeNeighbours& free) const noexcept {
    return counts_splits(block) ? change_by_freeing(block, free) : InactiveSplitChange{};
  }
  Block* free_at_once(Block* block);
  Block* complete_free(Block* block, const Lock& lock);
  void begin_use(Block* block, const Request& request, const InactiveSplitChange& change, const Lock& lock) noexcept;
  void put_in_pool(Block* block);
  // Of a segment that is wholly free now.
  void note_age(const Block& free) {
    if (!free.is_split()) free.segment->free_since = searches_.of(free.segment->kind);
  }
  void put_back(Block* block);
  [[nodiscard]] Block* hand_out(KnownPlaces::Number place, const Request& request, const Lock& lock) noexcept;
  // Of whichever kind of memory.
  void free_any_at_once(Block* block) {
    if (block->segment->is_paged())
      free_paged_at_once(block);
    else
      free_at_once(block);
  }
  // paged_blocks.cpp
  void free_paged_at_once(Block* block) noexcept;
  void put_free_paged(Block* block, BlockSpares& spares) noexcept;
  void settle_paged(Block* block, BlockSpares& spares) noexcept;
  // Others may have its address from here on.
  void leave_pages(const Block& block) noexcept { stream_heaps_.remove_block(block.address, *block.segment->owner); }
  Block* complete_paged_free(Block* block, StreamNumber to, const Lock& lock);

  // guarded_free.cpp: frees that wait for other streams.
  [[nodiscard]] bool is_own_stream(const Block& block, const StreamUse& use) const {
    return use.device == device_ && use.stream.id == block.segment->stream.id;
  }
  void add_use(Block* block, StreamUse&& use);
  // False: it is among them. Throws std::bad_alloc, unchanged.
  [[nodiscard]] bool add_use(StreamUses& uses, UseNodes& nodes, StreamUse&& use) const;
  [[nodiscard]] bool note_use(Block* block, const StreamUse& use, Lock& lock) noexcept;
  void begin_waiting(Block* block) const noexcept;
  void free_behind_events(Block* block, Lock& lock) noexcept;
  void provide_for_awaited(StreamHeap& owner) noexcept;
  CUresult guard(Block* block, Lock& lock) noexcept;
  void retire(StreamUses& uses, StreamHeap& owner) noexcept;
  [[nodiscard]] CUresult record_event(const StreamUse& use, CUevent* event, bool during_capture,
                                      bool may_wait) noexcept;
  [[nodiscard]] bool names_its_stream(const StreamUse& use) const;
  [[nodiscard]] bool wait_for_device_of(const StreamUse& use) const noexcept;
  void queue_or_wait(const PendingFrees::Entry& entry, Lock& lock) noexcept;
  void retry_unrecorded_frees(Lock& lock);
  void put_off(Block* block) noexcept;
  [[nodiscard]] Block* take_due_frees() noexcept;
  void drop_uses_in_capture(Block* block) noexcept;
  [[nodiscard]] bool is_captured(const StreamUse& use) const noexcept;
  [[nodiscard]] bool is_captured_in_context(const StreamIdentity& stream) const noexcept;

  // capture_reuse.cpp: reuse within a capture.
  void note_captured_free(Block* block) noexcept;
  [[nodiscard]] bool find_capture_point(const StreamUse& use, CapturePoint* point) const;
  [[nodiscard]] std::unordered_set<CUgraphNode> nodes_before(const CapturePoint& point) const;
  void complete_captured_frees(const StreamIdentity& stream, const Lock& lock);
  void take_back(Block* block) noexcept;
  [[nodiscard]] bool is_captured_still(const Block& block) const noexcept;
};

}  // namespace cistern
