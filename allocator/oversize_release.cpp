// Before everything is flushed: gives back just enough oversize segments of the request's
// stream. Only with max_split_size, below which oversize blocks are never used.

#include "allocator/device_allocator.h"

#include <algorithm>
#include <utility>

namespace cistern {

bool DeviceAllocator::release_oversize(const Request& request, Lock& lock) {
  const std::size_t least = policy_.max_split_size();
  if (least == kUnlimited) return false;
  const std::size_t wanted = std::max(request.rounded, least);
  BlockPool& pool = request.pools->of(request.kind);
  const Block* fit = pool.best_fit(wanted);
  // The pages of expandable segments only a flush gives back.
  while (fit != nullptr && fit->segment->range != nullptr) fit = pool.after(fit);
  if (fit != nullptr) {
    if (fit->is_split()) return false;
    return release_segments(SegmentList(fit->segment), lock) != 0;
  }
  // No single block is large enough: the largest ones together, if their sum is. What was
  // given back stays so even when it was not enough, as in PyTorch.
  SegmentList largest_first;
  pool.for_each([&](Block* block) {
    if (block->bytes >= least && block->bytes < wanted && !block->is_split() && block->segment->range == nullptr)
      largest_first.push_front(block->segment);
  });
  SegmentList chosen;
  std::size_t sum = 0;
  while (sum < wanted && !largest_first.empty()) {
    Segment* segment = largest_first.pop_front();
    sum += segment->bytes;
    chosen.push_back(segment);
  }
  static_cast<void>(release_segments(std::move(chosen), lock));
  return sum >= wanted;
}

}  // namespace cistern
