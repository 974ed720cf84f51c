#include "paged_comparison.h"

#include <rapidcheck.h>

#include <algorithm>
#include <vector>

namespace cistern::model {
namespace {

std::int64_t pages_of(std::size_t bytes) { return PageSize{12}.whole(static_cast<Sectors>(bytes) / kSectorBytes); }

}  // namespace

void PagedComparison::compare(const CachingAllocator& allocator) {
  const MemoryStats stats = allocator.memory_stats();
  memory_.forget_blocks();
  blocks_.clear();
  std::int64_t shown = 0;
  for (const SegmentInfo& segment : allocator.snapshot().segments) {
    compare_segment(segment);
    shown += segment.total_size;
  }
  RC_ASSERT(shown == stats.reserved_bytes.all.current);
  bound_.note(stats.allocated_bytes.all.current / kSectorBytes, pages_of(memory_.bytes_in_use()));
  const std::vector<StreamStats> streams = allocator.stream_stats();
  // One that stands alone creates what others have free, which stays: the bound is not for it.
  some_stood_alone_ |=
      std::any_of(streams.begin(), streams.end(), [](const StreamStats& one) { return one.stands_alone; });
  if (!some_stood_alone_) RC_ASSERT(pages_of(memory_.bytes()) <= bound_.most(pages_of(memory_.bytes())));
}

void PagedComparison::compare_segment(const SegmentInfo& segment) {
  std::int64_t tiled = 0;
  for (const BlockInfo& block : segment.blocks) {
    RC_ASSERT(block.address == segment.address + static_cast<std::uint64_t>(tiled));
    tiled += block.size;
    blocks_[block.address] = block;
    if (block.state != BlockState::inactive)
      RC_ASSERT(memory_.add(block.address, static_cast<std::size_t>(block.size)));
  }
  RC_ASSERT(tiled == segment.total_size);
}

std::int64_t PagedComparison::requested(void* pointer) const {
  const auto block = blocks_.find(reinterpret_cast<std::uintptr_t>(pointer));
  RC_ASSERT(block != blocks_.end());
  RC_ASSERT(block->second.state == BlockState::active_allocated);
  return block->second.requested_size;
}

}  // namespace cistern::model
