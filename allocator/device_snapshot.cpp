// What a heap shows of itself: its part of a snapshot, and its history's options.

#include "allocator/device_allocator.h"

#include <fmt/format.h>

#include <algorithm>

namespace cistern {
namespace {

// In a snapshot's table of all names, which begins with number 1.
TagIndex index_of(TagId tag) { return tag == kUntagged ? kNoTag : TagIndex{tag} - 1; }

// A segment without its blocks; returns how many there are, which go to the end of `blocks`.
std::size_t describe(const Segment& segment, int device, SegmentInfo& info, std::vector<BlockInfo>& blocks) {
  info.device = device;
  info.address = segment.address;
  info.total_size = static_cast<std::int64_t>(segment.bytes);
  info.stream = stream_number(segment.stream);
  info.is_large = segment.kind == PoolKind::large;
  info.is_expandable = segment.range != nullptr;
  if (const PrivatePool* home = segment.owner->home)
    info.segment_pool_id = {static_cast<std::int64_t>(home->id.first), static_cast<std::int64_t>(home->id.second)};
  info.stack = static_cast<StackIndex>(segment.stack) - 1;
  const std::size_t before = blocks.size();
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    const auto bytes = static_cast<std::int64_t>(block->bytes);
    const auto requested = static_cast<std::int64_t>(block->requested);
    const TagIndex tag = block->state == BlockState::inactive ? kNoTag : index_of(block->tag);
    blocks.push_back({block->address, bytes, requested, block->state, static_cast<StackIndex>(block->stack) - 1, tag});
    if (block->state == BlockState::active_allocated) info.allocated_size += bytes;
    if (block->state == BlockState::inactive) continue;
    info.active_size += bytes;
    info.requested_size += requested;
  }
  return blocks.size() - before;
}

}  // namespace

HistoryRing DeviceAllocator::prepare_history(const HistoryOptions& options) const {
  Lock lock(mutex_);
  const std::size_t capacity = history_.capacity_for(options);
  const std::size_t held = options.clear_history ? 0 : history_.size().entries;
  lock.unlock();
  return HistoryRing(capacity, held);
}

void DeviceAllocator::record_history(HistoryOptions&& options, HistoryRing&& ring) noexcept {
  const Lock lock(mutex_);
  const bool turns_off = options.enabled == HistoryEnabled::none;
  // A C++ program has native frames alone.
  const bool gathers = !turns_off && options.stacks == HistoryStacks::all;
  gathering_.store(
      gathers ? static_cast<std::uint32_t>(options.context) | static_cast<std::uint32_t>(options.max_frames) << 8 : 0,
      std::memory_order_relaxed);
  history_.set_options(std::move(options), std::move(ring));
  if (!turns_off) return;
  // Off is off: nothing shows a stack that was gathered before.
  for (Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    history_.let_go(segment->stack);
    for (Block* block = segment->first; block != nullptr; block = block->next) history_.let_go(block->stack);
  }
}

void DeviceAllocator::set_history_text(std::string_view text) {
  const Lock lock(mutex_);
  history_.set_text(text);
}

bool DeviceAllocator::annotate(std::uint64_t address, std::string_view text) {
  const Lock lock(mutex_);
  const Block* block = block_map_.find(address);
  if (block == nullptr) return false;
  history_.annotate(point_of(*block, lock), text);
  return true;
}

HistoryInfo DeviceAllocator::history_info() const {
  const Lock lock(mutex_);
  return history_.info();
}

std::vector<SegmentInfo> DeviceAllocator::segments_of(PoolId id) const {
  const Lock lock(mutex_);
  const PrivatePool* pool = nullptr;
  if (!id.is_default()) {
    require_private(id);
    pool = private_pools_.find(id);
    if (pool == nullptr)
      throw InvalidArgument(fmt::format("pool {} on device {}: there is none of that id", to_string(id), device_));
  }
  std::vector<SegmentInfo> segments;
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    if (segment->owner->home != pool) continue;
    SegmentInfo& info = segments.emplace_back();
    describe(*segment, device_, info, info.blocks);
    // Stacks and tags are named in whole snapshots alone.
    info.stack = kNoStack;
    for (BlockInfo& block : info.blocks) block.stack = kNoStack, block.tag = kNoTag;
  }
  std::sort(segments.begin(), segments.end(),
            [](const SegmentInfo& a, const SegmentInfo& b) { return a.address < b.address; });
  return segments;
}

void DeviceAllocator::add_to(Snapshot& snapshot, SnapshotStacks& stacks) {
  DeviceCut cut;
  Lock lock(mutex_);
  // Memory for the copy is taken without the lock: until it suffices.
  while (!cut.has_room_for(size_of_cut())) {
    const DeviceCut::Size size = size_of_cut();
    lock.unlock();
    cut.reserve(size);
    lock.lock();
  }
  take_cut(cut);
  // Of this snapshot, so the next one shows it.
  recorder_.snapshot_taken();
  lock.unlock();
  cut.move_to(snapshot, stacks, history_.clock());
}

DeviceCut::Size DeviceAllocator::size_of_cut() const { return {arena_.segments(), arena_.blocks(), history_.size()}; }

// A segment that is on its way back to the driver is gone from the history, and so from the rest,
// too: its address may belong to another already.
void DeviceAllocator::take_cut(DeviceCut& cut) const {
  cut.stats = recorder_.stats();
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    if (segment->going_back) {
      Recorder::count_release(cut.stats, segment->kind, static_cast<std::int64_t>(segment->bytes), segment->oversize);
      continue;
    }
    describe(*segment, device_, cut.segments.emplace_back(), cut.blocks);
    cut.ends.push_back(cut.blocks.size());
  }
  history_.copy_to(cut.history);
}

}  // namespace cistern
