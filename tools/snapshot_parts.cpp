#include "tools/snapshot_parts.h"

#include "tools/block_records.h"
#include "tools/recorded_pool.h"

namespace cistern {
namespace {

constexpr std::pair<std::int64_t, std::int64_t> kDefaultPool{0, 0};

void add_to(std::int64_t& sum, std::int64_t bytes) { sum = capped_sum(sum, bytes); }

void add_free(SnapshotParts& parts, const SegmentInfo& segment, const BlockInfo& block) {
  if (segment.segment_pool_id != kDefaultPool) {
    add_to(parts.free_private, block.size);
    return;
  }
  const std::int64_t whole = releasable_bytes(segment, block);
  add_to(parts.free_whole, whole);
  add_to(parts.free_split, block.size - whole);
}

void add(SnapshotParts& parts, const SegmentInfo& segment) {
  add_to(parts.reserved, segment.total_size);
  for (const BlockInfo& block : segment.blocks) switch (block.state) {
      case BlockState::active_allocated:
        add_to(parts.live_blocks, 1);
        add_to(parts.live, block.requested_size);
        add_to(parts.rounding, block.size - block.requested_size);
        break;
      case BlockState::active_pending_free:
        add_to(parts.pending, block.size);
        break;
      case BlockState::inactive:
        add_free(parts, segment, block);
        break;
    }
}

}  // namespace

SnapshotParts parts_of(const Snapshot& snapshot, std::optional<std::uint64_t> device) {
  SnapshotParts parts;
  for (const SegmentInfo& segment : snapshot.segments)
    if (!device || static_cast<std::uint64_t>(segment.device) == *device) add(parts, segment);
  return parts;
}

}  // namespace cistern
