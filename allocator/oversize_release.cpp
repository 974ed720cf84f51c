// Before everything is flushed: gives back just enough oversize segments of the request's
// stream. Only with max_split_size, below which oversize blocks are never used.

#include "allocator/device_allocator.h"

#include <algorithm>

namespace cistern {

bool DeviceAllocator::release_oversize(const Request& request, Lock& lock) {
  const std::size_t least = policy_.max_split_size();
  if (least == kUnlimited) return false;
  const std::size_t wanted = std::max(request.rounded, least);
  BlockPool& pool = request.pools->of(request.kind);
  if (Block* block = pool.best_fit(wanted); block != nullptr && block->segment->range == nullptr) {
    if (block->is_split()) return false;
    return release_segments({block->segment}, lock) != 0;
  }
  // No single block is large enough: the largest ones together, if their sum is. What was
  // given back stays so even when it was not enough, as in PyTorch.
  std::vector<Segment*> chosen;
  std::vector<Block*> by_size;
  pool.for_each([&](Block* block) {
    if (block->bytes >= least && block->bytes < wanted && !block->is_split() && block->segment->range == nullptr)
      by_size.push_back(block);
  });
  std::size_t sum = 0;
  for (auto block = by_size.rbegin(); block != by_size.rend() && sum < wanted; ++block) {
    sum += (*block)->bytes;
    chosen.push_back((*block)->segment);
  }
  static_cast<void>(release_segments(chosen, lock));
  return sum >= wanted;
}

}  // namespace cistern
