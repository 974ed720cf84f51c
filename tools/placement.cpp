#include "tools/placement.h"

#include <algorithm>
#include <deque>

#include "allocator/block_pool.h"
#include "allocator/size_policy.h"

namespace cistern {
namespace {

constexpr std::pair<std::int64_t, std::int64_t> kDefaultPool{0, 0};

// Numbers without a pattern, so that a pool's tree is as deep as its own arena makes it.
std::uint32_t priority_of(std::uint64_t number) {
  number = (number + 1) * 0x9E3779B97F4A7C15;
  number = (number ^ (number >> 31)) * 0xBF58476D1CE4E5B9;
  return static_cast<std::uint32_t>(number >> 32);
}

bool is_free(const SegmentInfo& segment) {
  return std::ranges::none_of(segment.blocks,
                              [](const BlockInfo& block) { return block.state == BlockState::active_allocated; });
}

class Placer {
 public:
  Placer(const AllocatorOptions& options, const PlacementRequest& request)
      : options_(options), request_(request), policy_(options) {
    placement_.rounded_bytes = policy_.round(request.bytes);
    placement_.segment_bytes = policy_.segment_bytes(placement_.rounded_bytes);
    kind_ = policy_.pool(placement_.rounded_bytes);
    placement_.is_large = kind_ == PoolKind::large;
    placement_.new_block_bytes = cut(placement_.segment_bytes);
  }

  void add(const SegmentInfo& segment) {
    const bool is_default = segment.segment_pool_id == kDefaultPool;
    if (is_default && is_free(segment)) placement_.flushed.add({1, segment.total_size, 0});
    const std::optional<Unfit> reason = reason_of(segment);
    for (const BlockInfo& block : segment.blocks) {
      if (block.state == BlockState::active_pending_free) note(reason.value_or(Unfit::pending), block.size);
      if (block.state != BlockState::inactive) continue;
      if (reason)
        note(*reason, block.size);
      else
        add_free(segment, block);
    }
    if (!reason) note_runs(segment);
  }

  Placement finish() {
    Block* best = pool_.best_fit(placement_.rounded_bytes);
    const bool serves = best != nullptr && policy_.may_serve(best->bytes, placement_.rounded_bytes);
    if (serves) {
      const auto handed_out = cut(best->bytes);
      placement_.served_by = CutBlock{best->segment->address, best->address, handed_out,
                                      static_cast<std::int64_t>(best->bytes) - handed_out};
    }
    pool_.for_each([&](const Block* block) {
      const bool fits = block->bytes >= placement_.rounded_bytes;
      placement_.candidates += fits ? 1 : 0;
      if (block == best && serves) return;
      note(!fits           ? Unfit::too_small
           : block == best ? Unfit::max_split_size
                           : Unfit::not_looked_at,
           static_cast<std::int64_t>(block->bytes));
    });
    return placement_;
  }

 private:
  // The bytes that are handed out of a free block of so many.
  [[nodiscard]] std::int64_t cut(std::size_t block_bytes) const {
    const bool splits = policy_.should_split(block_bytes, placement_.rounded_bytes, kind_);
    return static_cast<std::int64_t>(splits ? placement_.rounded_bytes : block_bytes);
  }

  // Why nothing of the segment serves; nothing if its free blocks are the request's.
  [[nodiscard]] std::optional<Unfit> reason_of(const SegmentInfo& segment) const {
    if (segment.segment_pool_id != request_.pool_id) return Unfit::other_pool;
    if (segment.stream != request_.stream) return Unfit::other_stream;
    if (segment.is_large != placement_.is_large) return Unfit::other_kind;
    // A private pool keeps its memory, whatever the policy.
    if (options_.policy == Policy::direct && request_.pool_id == kDefaultPool) return Unfit::not_cached;
    if (options_.policy != Policy::expandable && segment.is_expandable) return Unfit::expandable;
    return std::nullopt;
  }

  void note(Unfit reason, std::int64_t bytes) {
    UnfitMemory& memory = placement_.unfit[static_cast<std::size_t>(reason)];
    memory.figures.add({1, bytes, 0});
    memory.largest = std::max(memory.largest, bytes);
    memory.large_enough += static_cast<std::size_t>(bytes) >= placement_.rounded_bytes ? 1 : 0;
  }

  void add_free(const SegmentInfo& segment, const BlockInfo& info) {
    if (segments_.empty() || segments_.back().address != segment.address) {
      segments_.emplace_back();
      segments_.back().address = segment.address;
    }
    Block& block = blocks_.emplace_back();
    block.address = info.address;
    block.bytes = static_cast<std::size_t>(info.size);
    block.priority = priority_of(blocks_.size());
    block.segment = &segments_.back();
    pool_.insert(&block);
  }

  // Free and pending blocks side by side become one free block.
  void note_runs(const SegmentInfo& segment) {
    std::int64_t run = 0;
    for (const BlockInfo& block : segment.blocks) {
      run = block.state == BlockState::active_allocated ? 0 : run + block.size;
      placement_.largest_without_pending = std::max(placement_.largest_without_pending, run);
    }
  }

  const AllocatorOptions& options_;
  const PlacementRequest& request_;
  SizePolicy policy_;
  PoolKind kind_ = PoolKind::small;
  Placement placement_;
  std::deque<Segment> segments_;
  std::deque<Block> blocks_;
  BlockPool pool_;
};

}  // namespace

const char* to_string(Unfit reason) noexcept {
  switch (reason) {
    case Unfit::other_pool:
      return "another pool";
    case Unfit::other_stream:
      return "another stream";
    case Unfit::other_kind:
      return "the other size class";
    case Unfit::not_cached:
      return "policy direct";
    case Unfit::expandable:
      return "expandable segment";
    case Unfit::too_small:
      return "too small";
    case Unfit::max_split_size:
      return "max_split_size";
    case Unfit::not_looked_at:
      return "behind the best fit";
    case Unfit::pending:
      break;
  }
  return "pending";
}

Placement place(const Snapshot& snapshot, const AllocatorOptions& options, const PlacementRequest& request) {
  Placer placer(options, request);
  for (const SegmentInfo& segment : snapshot.segments)
    if (segment.device == request.device) placer.add(segment);
  return placer.finish();
}

}  // namespace cistern
