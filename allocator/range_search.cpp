#include "allocator/range_search.h"

#include "allocator/address_range.h"
#include "allocator/device_allocator.h"

namespace cistern {
namespace {

// What a request that takes the block's end could make of it: the block, and the unmapped
// addresses behind it.
std::size_t room_from(const Block& block) {
  const Segment& segment = *block.segment;
  if (segment.range == nullptr || block.next != nullptr) return block.bytes;
  return block.bytes + segment.range->unmapped_behind(segment);
}

}  // namespace

Block* choose_beside_ranges(const BlockPool& pool, Block* block, bool segments_expand) {
  if (!segments_expand) {
    while (block != nullptr && block->segment->range != nullptr) block = pool.after(block);
    return block;
  }
  while (block != nullptr && block->segment->range != nullptr) {
    Block* next = pool.after(block);
    if (next == nullptr || room_from(*next) >= room_from(*block)) break;
    block = next;
  }
  return block;
}

// Segments of the driver's own making serve the pools of captures under 2.4's rules.
bool HeapReports::expands(const Request& request) const {
  return options_.policy == Policy::expandable && (request.pools->home == nullptr || !follows_2_4());
}

// Expandable segments serve nobody while the option is off, as choose_beside_ranges has it.
bool HeapReports::serves(const Segment& segment) const {
  return segment.range == nullptr || options_.policy == Policy::expandable;
}

}  // namespace cistern
