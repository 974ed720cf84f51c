// The live block that a byte belongs to, for callers that know a part of it: a slice of a tensor.

#include "allocator/device_allocator.h"

namespace cistern {
namespace {

const Block* block_around(const Segment& segment, std::uint64_t address) {
  for (const Block* block = segment.first; block != nullptr; block = block->next)
    if (block->state == BlockState::active_allocated && address - block->address < block->bytes) return block;
  return nullptr;
}

}  // namespace

Block* HeapReports::find_live_around(std::uint64_t address) const noexcept {
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    // A stream's blocks in paged memory hang on a segment that has no place.
    if (!segment->is_paged() && address - segment->address >= segment->bytes) continue;
    const Block* block = block_around(*segment, address);
    if (block != nullptr) return find_live(block->address);
    if (!segment->is_paged()) return nullptr;
  }
  return nullptr;
}

bool DeviceAllocator::record_use_around(std::uint64_t address, StreamUse& use) {
  if (record_use(address, use)) return true;
  const Lock lock(mutex_);
  Block* block = find_live_around(address);
  if (block == nullptr) return false;
  add_use(block, std::move(use));
  return true;
}

}  // namespace cistern
