// What a heap shows of itself: its part of reports, and the walk that verifies it.

#include "allocator/heap_reports.h"
#include "stats/invariant.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

namespace cistern {
namespace {

// What the counters must say, recomputed by walking.
struct Walked {
  std::int64_t segments = 0, reserved = 0;
  std::int64_t allocated = 0, allocated_bytes = 0;
  std::int64_t active = 0, active_bytes = 0, requested_bytes = 0;
  std::int64_t inactive_split = 0, inactive_split_bytes = 0;
  std::int64_t oversize_allocations = 0, oversize_segments = 0;

  void add(const Walked& other) {
    segments += other.segments;
    reserved += other.reserved;
    allocated += other.allocated;
    allocated_bytes += other.allocated_bytes;
    active += other.active;
    active_bytes += other.active_bytes;
    requested_bytes += other.requested_bytes;
    inactive_split += other.inactive_split;
    inactive_split_bytes += other.inactive_split_bytes;
    oversize_allocations += other.oversize_allocations;
    oversize_segments += other.oversize_segments;
  }
  // Expandable segments and paged memory count neither as segments nor as split.
  void add(const Segment& segment) {
    const bool is_counted = segment.range == nullptr && !segment.is_paged();
    segments += is_counted ? 1 : 0;
    oversize_segments += segment.oversize ? 1 : 0;
    reserved += static_cast<std::int64_t>(segment.bytes);
    for (const Block* block = segment.first; block != nullptr; block = block->next) add(*block, is_counted);
  }
  void add(const Block& block, bool counts_splits) {
    const auto bytes = static_cast<std::int64_t>(block.bytes);
    if (block.state == BlockState::active_allocated) {
      ++allocated;
      oversize_allocations += block.oversize ? 1 : 0;
      allocated_bytes += bytes;
    }
    if (block.state != BlockState::inactive) {
      ++active;
      active_bytes += bytes;
      requested_bytes += static_cast<std::int64_t>(block.requested);
    } else if (counts_splits && block.is_split()) {
      ++inactive_split;
      inactive_split_bytes += bytes;
    }
  }
};

void require_equal(const Stat& stat, std::int64_t walked, std::string_view name) {
  if (stat.current != walked)
    throw std::logic_error(
        fmt::format("cistern: broken invariant: {} is {}, a walk finds {}", name, stat.current, walked));
  if (stat.peak < stat.current || stat.current < 0)
    throw std::logic_error(
        fmt::format("cistern: broken invariant: {}: current {}, peak {}", name, stat.current, stat.peak));
}

void require_equal(const MemoryStats& stats, const Walked& walked, Stat PoolStat::*pool) {
  require_equal(stats.segment.*pool, walked.segments, "segment");
  require_equal(stats.reserved_bytes.*pool, walked.reserved, "reserved_bytes");
  require_equal(stats.allocation.*pool, walked.allocated, "allocation");
  require_equal(stats.allocated_bytes.*pool, walked.allocated_bytes, "allocated_bytes");
  require_equal(stats.active.*pool, walked.active, "active");
  require_equal(stats.active_bytes.*pool, walked.active_bytes, "active_bytes");
  require_equal(stats.requested_bytes.*pool, walked.requested_bytes, "requested_bytes");
  require_equal(stats.inactive_split.*pool, walked.inactive_split, "inactive_split");
  require_equal(stats.inactive_split_bytes.*pool, walked.inactive_split_bytes, "inactive_split_bytes");
}

}  // namespace

HeapReports::Usage HeapReports::usage() const {
  const HeapLook look(mutex_);
  return usage_locked();
}

// As a request of the pool `home` sees it: the default pool's, if null. Other private pools keep
// what they have.
HeapReports::Usage HeapReports::usage_locked(const PrivatePool* home) const {
  Usage usage;
  usage.stats = recorder_.stats();
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next)
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->state == BlockState::active_pending_free) {
        usage.pending += block->bytes;
        usage.pending_requested += block->requested;
      }
      if (block->state != BlockState::inactive) continue;
      const PrivatePool* pool = segment->owner->home;
      if (pool != nullptr && pool != home) {
        usage.free_private += block->bytes;
        continue;
      }
      const std::size_t whole = releasable_bytes(*block);
      usage.free_whole += whole;
      usage.free_split += block->bytes - whole;
      if (pool != nullptr) {
        usage.own_pool_free_whole += whole;
        usage.own_pool_free_split += block->bytes - whole;
      }
      usage.largest_free_block = std::max(usage.largest_free_block, block->bytes);
    }
  add_paged(usage);
  return usage;
}

void HeapReports::check() const {
  const HeapLook look(mutex_);
  Walked small;
  Walked large;
  std::size_t free_blocks = 0;
  std::int64_t linked = 0;
  if (paged_ != nullptr) large.reserved += as_signed(paged_->check());
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    check_segment(*segment);
    linked += segment->is_paged() ? 0 : 1;  // which may have no block
    (segment->kind == PoolKind::small ? small : large).add(*segment);
    if (segment->releasing) continue;
    for (const Block* block = segment->first; block != nullptr; block = block->next)
      free_blocks += block->state == BlockState::inactive ? 1 : 0;
  }
  arena_.for_each_segment_place(
      [&linked](const Segment& segment) { linked -= segment.first != nullptr && !segment.is_paged() ? 1 : 0; });
  require(linked == 0, "a segment has blocks while it is linked, and only then");
  std::size_t pooled = 0;
  const auto check_pool = [&](const StreamHeap& pool) {
    for (const BlockPool& free : pool.pools) {
      free.check();
      pooled += free.size();
    }
  };
  pools_.for_each(check_pool);
  private_pools_.for_each([&](const PrivatePool& pool) { pool.streams.for_each(check_pool); });
  check_private_pools();
  check_tags();
  check_streams();
  check_guests();
  check_ranges();
  check_history();
  require(pooled == free_blocks, "every free block is in exactly one pool");
  std::size_t live = block_map_.size();
  pools_.for_each([&](const StreamHeap& heap) { live += heap.live.size(); });
  require(live == static_cast<std::size_t>(small.allocated + large.allocated), "the block maps' size");
  const MemoryStats& stats = recorder_.stats();
  require_equal(stats, small, &PoolStat::small_pool);
  require_equal(stats, large, &PoolStat::large_pool);
  Walked all = small;
  all.add(large);
  require_equal(stats, all, &PoolStat::all);
  require_equal(stats.oversize_allocations, all.oversize_allocations, "oversize_allocations");
  require_equal(stats.oversize_segments, all.oversize_segments, "oversize_segments");
  require(held_bytes_ == static_cast<std::size_t>(small.reserved + large.reserved), "held bytes equal the segments'");
}

// Each pool's own figures, and that it is there for a reason.
void HeapReports::check_private_pools() const {
  private_pools_.for_each([&](const PrivatePool& pool) {
    Walked small;
    Walked large;
    for (const Segment* segment = segments_; segment != nullptr; segment = segment->next)
      if (segment->owner->home == &pool) (segment->kind == PoolKind::small ? small : large).add(*segment);
    const MemoryStats stats = pool.recorder.stats();
    require_equal(stats, small, &PoolStat::small_pool);
    require_equal(stats, large, &PoolStat::large_pool);
    require(pool.is_referenced(), "a private pool that nothing refers to is gone");
    require(pool.parent == nullptr || private_pools_.find(pool.parent->id) == pool.parent, "a pool's parent lives");
  });
}

// Blocks are found where pages are mapped, and nowhere else.
void HeapReports::check_pages_of(const AddressRange& range) const {
  std::uint64_t at = range.address;
  const auto check_up_to = [&](std::uint64_t end, const StreamHeap* found) {
    for (; at < end; at += StreamHeapArena::kPage)
      require(stream_heaps_.find_by_page(at) == found, "pages of a range know whose they are");
  };
  for (const Segment* segment : range.segments) {
    check_up_to(segment->address, nullptr);
    check_up_to(segment->end(), range.is_found_by_page && !segment->releasing ? range.owner : nullptr);
  }
  check_up_to(range.known_end, nullptr);
}

// Each range's order, and that every segment of a range is a segment of the heap.
void HeapReports::check_ranges() const {
  std::size_t in_ranges = 0;
  std::size_t pages = 0;
  const AddressRange* previous = nullptr;
  for (const AddressRange* range = ranges_; range != nullptr; range = range->next) {
    range->check();
    require(previous == nullptr || previous->end() <= range->address, "address ranges are in order");
    check_pages_of(*range);
    for (const Segment* segment : range->segments) {
      in_ranges += segment->first != nullptr ? 1 : 0;
      pages += segment->bytes / range->page_bytes;
    }
    previous = range;
  }
  std::size_t in_heap = 0;
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next)
    in_heap += segment->range != nullptr ? 1 : 0;
  require(in_ranges == in_heap, "expandable segments are their ranges'");
  require(pages == mapped_pages_, "the count of mapped pages");
  require(plain_search_ == (options_.policy == Policy::classic && ranges_ == nullptr), "which search is made");
}

// That the history counts the stacks of blocks and segments.
void HeapReports::check_history() const {
  std::vector<std::uint64_t> held(history_.stack_count());
  const auto count = [&held](StackId stack) {
    require(stack <= held.size(), "blocks and segments refer to what the table of stacks has");
    if (stack != kNoStackId) ++held[stack - 1];
  };
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    count(segment->stack);
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      count(block->stack);
      require(block->state != BlockState::inactive || block->stack == kNoStackId, "a free block has no stack");
    }
  }
  history_.check(std::move(held), requests_with_stacks_);
}

void HeapReports::check_segment(const Segment& segment) const {
  if (segment.is_paged()) return check_paged(segment);
  std::uint64_t address = segment.address;
  const Block* previous = nullptr;
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    require(block->address == address, "blocks tile their segment in address order");
    require(block->previous == previous && block->segment == &segment, "block links");
    require(block->bytes != 0 && block->bytes % kMinBlockSize == 0, "block sizes are multiples of 512");
    const bool free = block->state == BlockState::inactive;
    require(segment.is_plain == (caches_ && segment.owner->home == nullptr && segment.range == nullptr),
            "only default pools' segments are plain");
    require(block->state != BlockState::active_allocated || block->kind == segment.kind, "a live block knows its pool");
    require(block->has_uses || block->uses.empty(), "a block knows that others used it");
    require(!free || segment.releasing || segment.pool->contains(block), "a free block is in its segment's pool");
    require(!free || previous == nullptr || previous->state != BlockState::inactive, "free neighbours are coalesced");
    require((block->state == BlockState::active_allocated) == (find_live(block->address) == block),
            "live blocks, and no others, are found by address");
    address += block->bytes;
    previous = block;
  }
  require(
      !segment.is_found_by_page || segment.releasing || stream_heaps_.find_by_page(segment.address) == segment.owner,
      "pages know whose they are");
  require(segment.range == nullptr || segment.is_found_by_page == segment.range->is_found_by_page,
          "a range's blocks are found in one way");
  require(address == segment.address + segment.bytes, "blocks fill their segment");
  require(previous == segment.last, "a segment knows its last block");
}

// What stands for a stream in paged memory; the rest is PagedMemory::check's.
void HeapReports::check_paged(const Segment& segment) const {
  const PagedMemory::Stream& stream = paged_->stream(segment.paged_stream);
  require(stream.segment == &segment && segment.bytes == 0 && !segment.is_plain, "a stream has one segment in pages");
  for (const Block* block = segment.first; block != nullptr; block = block->next)
    require((block->state == BlockState::active_allocated) == (find_live(block->address) == block),
            "live blocks, and no others, are found by address");
}

// Of a block that is in pages, live or waited for.
void HeapReports::check_guests() const {
  std::size_t guests = 0;
  const auto check_block = [&](const Block& block) {
    const StreamHeap* const owner = block.segment->owner;
    const StreamHeap::Guest* const known = stream_heaps_.find_guest(block.address);
    const bool is_guest = stream_heaps_.find_by_page(block.address) != owner;
    const bool is_known = known != nullptr && known->is_live;
    require(is_known == is_guest && (!is_guest || known->of == owner), "guests are found by address, and no others");
    guests += is_guest ? 1 : 0;
  };
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next)
    if (segment->is_paged())
      for (const Block* block = segment->first; block != nullptr; block = block->next) check_block(*block);
  std::size_t known = 0;
  stream_heaps_.for_each_guest([&](std::uint64_t, const StreamHeap::Guest& guest) { known += guest.is_live ? 1 : 0; });
  require(known == guests, "who is known as a guest is one");
}

}  // namespace cistern
