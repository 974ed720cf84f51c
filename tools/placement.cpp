#include "tools/placement.h"

#include <algorithm>

#include "allocator/range_search.h"
#include "allocator/size_policy.h"

namespace cistern {
namespace {

constexpr std::pair<std::int64_t, std::int64_t> kDefaultPool{0, 0};

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
    // Of captures PyTorch 2.4 asks the driver for segments all the same.
    placement_.expands = options_.policy == Policy::expandable &&
                         (request.pool_id == kDefaultPool || options_.pytorch_rules != PytorchRules::v2_4);
  }

  void add(const SegmentInfo& segment) {
    if (segment.segment_pool_id == kDefaultPool) add_flushed(segment);
    const std::optional<Unfit> reason = reason_of(segment);
    for (const BlockInfo& block : segment.blocks) {
      if (block.state == BlockState::active_pending_free) note(reason.value_or(Unfit::pending), block.size);
      if (block.state != BlockState::inactive) continue;
      if (reason) note(*reason, block.size);
    }
    if (reason) return;
    pool_.add(segment);
    note_runs(segment);
  }

  Placement finish() {
    const BlockPool& free = pool_.free_blocks();
    const Block* const best =
        choose_beside_ranges(free, free.best_fit(placement_.rounded_bytes), options_.policy == Policy::expandable);
    const bool serves = best != nullptr && policy_.may_serve(best->bytes, placement_.rounded_bytes);
    if (!options_.research_after_flush ||
        (placement_.found_after_flush &&
         !policy_.may_serve(static_cast<std::size_t>(*placement_.found_after_flush), placement_.rounded_bytes)))
      placement_.found_after_flush.reset();
    if (serves) {
      const auto handed_out = cut(best->bytes);
      placement_.served_by = CutBlock{best->segment->address, best->address, handed_out,
                                      static_cast<std::int64_t>(best->bytes) - handed_out};
    }
    ask_driver();
    bool is_passed = false;  // the one that serves, by size and address
    free.for_each([&](const Block* block) {
      const bool fits = block->bytes >= placement_.rounded_bytes;
      placement_.candidates += fits ? 1 : 0;
      is_passed = is_passed || block == best;
      if (block == best && serves) return;
      note(!fits           ? Unfit::too_small
           : block == best ? Unfit::max_split_size
           : is_passed     ? Unfit::not_looked_at
                           : Unfit::room_to_grow,
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

  void ask_driver() {
    if (placement_.expands) {
      placement_.growth = pool_.growth_for(placement_.rounded_bytes, page_bytes_of(kind_));
    }
    placement_.new_block_bytes = cut(placement_.expands ? placement_.growth.block_bytes : placement_.segment_bytes);
  }

  void add_flushed(const SegmentInfo& segment) {
    const std::int64_t bytes = segment.is_expandable ? releasable_pages(segment)
                               : is_free(segment)    ? segment.total_size
                                                     : 0;
    if (bytes != 0) placement_.flushed.add({1, bytes, 0});
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

  void note_runs(const SegmentInfo& segment) {
    const bool is_flushed = segment.segment_pool_id == kDefaultPool;
    for_each_run(segment, [&](std::int64_t begin, std::int64_t end) {
      placement_.largest_without_pending = std::max(placement_.largest_without_pending, end - begin);
      for (const std::int64_t kept :
           is_flushed ? kept_of_run(segment, begin, end) : std::array{end - begin, std::int64_t{0}})
        if (static_cast<std::size_t>(kept) >= placement_.rounded_bytes)
          placement_.found_after_flush = std::min(placement_.found_after_flush.value_or(kept), kept);
    });
  }

  const AllocatorOptions& options_;
  const PlacementRequest& request_;
  SizePolicy policy_;
  PoolKind kind_ = PoolKind::small;
  Placement placement_;
  RecordedPool pool_;
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
    case Unfit::room_to_grow:
      return "room to grow behind it";
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
