#include "block_comparison.h"

#include <rapidcheck.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "ledger_comparison.h"

namespace cistern::model {
namespace {

// The model's segments as a snapshot has them: of an address range, what is mapped without a gap.
std::vector<ModelSegment> shown(const std::list<ModelSegment>& all) {
  std::vector<ModelSegment> segments;
  for (const ModelSegment& segment : all) {
    bool follows = false;
    for (const ModelBlock& block : segment.blocks) {
      if (block.mapped && !follows) {
        segments.push_back(segment);
        segments.back().address = block.address;
        segments.back().blocks.clear();
      }
      if (block.mapped) segments.back().blocks.push_back(block);
      follows = block.mapped;
    }
  }
  return segments;
}

BlockState state_of(const ModelBlock& block) {
  if (block.live) return BlockState::active_allocated;
  return block.pending ? BlockState::active_pending_free : BlockState::inactive;
}

std::string tag_of(const BlockInfo& block, const Snapshot& snapshot) {
  return block.tag == kNoTag ? std::string() : snapshot.tags.at(static_cast<std::size_t>(block.tag));
}

void compare_block(const BlockInfo& block, const ModelBlock& expected, std::uint64_t base, const Snapshot& snapshot) {
  RC_ASSERT(block.address - base == expected.address);
  RC_ASSERT(block.size == static_cast<std::int64_t>(expected.bytes));
  RC_ASSERT(block.state == state_of(expected));
  RC_ASSERT(tag_of(block, snapshot) == (expected.free() ? "" : LedgerComparison::tag(expected.tag).name()));
}

}  // namespace

void compare_blocks(Snapshot snapshot, const std::list<ModelSegment>& segments,
                    const std::array<std::uint64_t, 2>& offsets, const std::function<PoolId(int)>& id_of) {
  std::stable_partition(snapshot.segments.begin(), snapshot.segments.end(),
                        [](const SegmentInfo& segment) { return !segment.is_expandable; });
  const std::vector<ModelSegment> all_expected = shown(segments);
  RC_ASSERT(snapshot.segments.size() == all_expected.size());
  auto expected = all_expected.begin();
  for (const SegmentInfo& segment : snapshot.segments) {
    RC_ASSERT(segment.is_expandable == expected->expandable());
    const std::uint64_t base = offsets[segment.is_expandable ? 1 : 0];
    RC_ASSERT(segment.address - base == expected->address);
    const PoolId pool = id_of(expected->pool);
    RC_ASSERT(segment.segment_pool_id.first == static_cast<std::int64_t>(pool.first));
    RC_ASSERT(segment.segment_pool_id.second == static_cast<std::int64_t>(pool.second));
    RC_ASSERT(segment.blocks.size() == expected->blocks.size());
    for (std::size_t i = 0; i < segment.blocks.size(); ++i)
      compare_block(segment.blocks[i], expected->blocks[i], base, snapshot);
    ++expected;
  }
}

}  // namespace cistern::model
