// The search where a pool may have blocks of expandable segments. The order in which they are
// preferred is PyTorch's.

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

// The block that serves instead of the best fit, which may be null. While segments expand, that
// with the least room to grow among those that follow by size, so that an open end stays for what
// needs it. When the policy is classic again, none of an address range.
Block* DeviceAllocator::choose_beside_ranges(const BlockPool& pool, Block* block) const {
  if (options_.policy != Policy::expandable) {
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
bool DeviceAllocator::expands(const Request& request) const {
  return options_.policy == Policy::expandable && (request.pools->home == nullptr || !follows_2_4());
}

}  // namespace cistern
