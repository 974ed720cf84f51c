#include "tools/snapshot_parts.h"

#include "tools/block_records.h"

namespace cistern {
namespace {

constexpr std::pair<std::int64_t, std::int64_t> kDefaultPool{0, 0};

// Where the segment's free bytes belong.
std::int64_t& free_part(SnapshotParts& parts, const SegmentInfo& segment) {
  if (segment.segment_pool_id != kDefaultPool) return parts.free_private;
  return segment.blocks.size() == 1 ? parts.free_whole : parts.free_split;
}

void add(SnapshotParts& parts, const SegmentInfo& segment) {
  const auto add_to = [](std::int64_t& sum, std::int64_t bytes) { sum = capped_sum(sum, bytes); };
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
        add_to(free_part(parts, segment), block.size);
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
