#pragma once

// The blocks of a snapshot one by one, each with what its segment says of it.
//
// Thread safety: values, and functions of their arguments.

#include <cistern/snapshot.h>

#include <cstdint>
#include <utility>

namespace cistern {

struct BlockRecord {
  int device = 0;
  std::int64_t stream = 0;
  std::pair<std::int64_t, std::int64_t> pool_id{0, 0};
  bool is_large = false;
  bool is_expandable = false;
  std::uint64_t segment = 0;  // its address
  std::uint64_t address = 0;
  std::int64_t size = 0;
  std::int64_t requested_size = 0;  // 0 where the block is inactive: it says nothing then
  BlockState state = BlockState::inactive;
  StackIndex stack = kNoStack;
  TagIndex tag = kNoTag;
};

// Calls `visit(BlockRecord)` for each block, by device and address.
template <class Visit>
void for_each_block(const Snapshot& snapshot, Visit&& visit) {
  for (const SegmentInfo& segment : snapshot.segments)
    for (const BlockInfo& block : segment.blocks)
      visit(BlockRecord{segment.device, segment.stream, segment.segment_pool_id, segment.is_large,
                        segment.is_expandable, segment.address, block.address, block.size,
                        block.state == BlockState::inactive ? 0 : block.requested_size, block.state, block.stack,
                        block.tag});
}

// The sum, or the largest number there is: sums over the devices of a file that somebody made may be larger.
[[nodiscard]] constexpr std::int64_t capped_sum(std::int64_t a, std::int64_t b) {
  return a > INT64_MAX - b ? INT64_MAX : a + b;
}

// Blocks counted, and their bytes.
struct BlockFigures {
  std::int64_t blocks = 0;
  std::int64_t bytes = 0;
  std::int64_t requested_bytes = 0;

  void add(const BlockFigures& more) {
    blocks = capped_sum(blocks, more.blocks);
    bytes = capped_sum(bytes, more.bytes);
    requested_bytes = capped_sum(requested_bytes, more.requested_bytes);
  }
  void add(const BlockRecord& block) { add({1, block.size, block.requested_size}); }
};

}  // namespace cistern
