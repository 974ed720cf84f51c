// Checkpoint of a private pool's block state, and the way back to it (torch's
// _cuda_getCheckpointState and _cuda_setCheckpointPoolState).

#include "allocator/pool_checkpoint.h"

#include "allocator/device_allocator.h"
#include "runtime/driver_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace cistern {
namespace {

using State = PoolCheckpoint::State;

State::SegmentRecord note(const Segment& segment) {
  State::SegmentRecord record{segment.address, segment.bytes, segment.kind, segment.stream, {}};
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    const bool live = block->state == BlockState::active_allocated;
    record.blocks.push_back({block->address, block->bytes, live, block->uses, live ? block->tag : kUntagged});
  }
  return record;
}

SegmentInfo describe(const State::SegmentRecord& record, const State& state) {
  SegmentInfo info;
  info.device = state.device;
  info.address = record.address;
  info.total_size = static_cast<std::int64_t>(record.bytes);
  info.stream = stream_number(record.stream);
  info.is_large = record.kind == PoolKind::large;
  info.segment_pool_id = {static_cast<std::int64_t>(state.pool.first), static_cast<std::int64_t>(state.pool.second)};
  for (const State::BlockRecord& block : record.blocks) {
    const auto bytes = static_cast<std::int64_t>(block.bytes);
    info.blocks.push_back(
        {block.address, bytes, bytes, block.live ? BlockState::active_allocated : BlockState::inactive});
    if (!block.live) continue;
    info.allocated_size += bytes;
    info.active_size += bytes;
    info.requested_size += bytes;
  }
  return info;
}

}  // namespace

PoolId PoolCheckpoint::pool() const noexcept { return state_->pool; }

std::vector<SegmentInfo> PoolCheckpoint::segments() const {
  std::vector<SegmentInfo> segments;
  for (const State::SegmentRecord& record : state_->segments) segments.push_back(describe(record, *state_));
  return segments;
}

// Puts frees that a capture put off on their way, and refuses if one is still awaited. Events
// are not queried: a checkpoint changes no statistics but those of put-off frees, as in PyTorch.
void DeviceAllocator::settle_pending_of(PoolId id, Lock& lock) {
  if (unrecorded_frees_ != nullptr) retry_unrecorded_frees(lock);
  const PrivatePool& pool = used_pool(id);
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    if (segment->owner->home != &pool) continue;
    for (const Block* block = segment->first; block != nullptr; block = block->next)
      if (block->state == BlockState::active_pending_free)
        throw NotReady(
            fmt::format("pool {} on device {}: its block at {:#x} is freed, but work on other streams may still use "
                        "it: expected none such",
                        to_string(id), device_, block->address));
  }
}

std::shared_ptr<const State> DeviceAllocator::checkpoint_pool(PoolId id) {
  Section section(*this);
  static_cast<void>(used_pool(id));
  settle_pending_of(id, section.lock);
  auto state = std::make_shared<State>();
  state->pool = id;
  state->device = device_;
  const PrivatePool& pool = used_pool(id);
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next)
    if (segment->owner->home == &pool && !segment->releasing) state->segments.push_back(note(*segment));
  std::sort(state->segments.begin(), state->segments.end(),
            [](const auto& a, const auto& b) { return a.address < b.address; });
  return state;
}

// The segments of the pool that a checkpoint names, in its order. An expandable segment may have
// grown since, so that it holds what was one, or more than one, then.
std::vector<Segment*> DeviceAllocator::segments_named_by(const State& checkpoint) const {
  const PrivatePool& pool = used_pool(checkpoint.pool);
  std::vector<Segment*> present;
  for (Segment* segment = segments_; segment != nullptr; segment = segment->next)
    if (segment->owner->home == &pool && !segment->releasing) present.push_back(segment);
  std::sort(present.begin(), present.end(), [](const Segment* a, const Segment* b) { return a->address < b->address; });
  std::vector<Segment*> found;
  for (const State::SegmentRecord& record : checkpoint.segments) {
    const auto after = std::upper_bound(present.begin(), present.end(), record.address,
                                        [](std::uint64_t at, const Segment* segment) { return at < segment->address; });
    Segment* segment = after == present.begin() ? nullptr : *std::prev(after);
    const auto holds = [&record](const Segment& one) {
      const bool is_part = one.range != nullptr && record.address + record.bytes <= one.end();
      return (is_part || (one.address == record.address && one.bytes == record.bytes)) && one.kind == record.kind &&
             one.stream.id == record.stream.id;
    };
    if (segment == nullptr || !holds(*segment))
      throw InvalidArgument(fmt::format("pool {} on device {}: the checkpoint's segment of {} bytes at {:#x} is gone",
                                        to_string(checkpoint.pool), device_, record.bytes, record.address));
    found.push_back(segment);
  }
  return found;
}

// Orders each live block's own stream behind the streams that used it, on the device, so that the
// block is free in the order of its own stream, as a restore needs it. Throws before anything of
// the pool is changed.
void DeviceAllocator::order_behind_uses(const PrivatePool& pool, Lock& lock) {
  std::vector<std::pair<StreamUse, StreamUse>> orders;  // who used it, and whose it is
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    if (segment->owner->home != &pool) continue;
    for (const Block* block = segment->first; block != nullptr; block = block->next)
      for (const StreamUse& use : block->uses)
        if (!use.in_capture) orders.emplace_back(use, StreamUse{segment->stream, device_, nullptr});
  }
  const bool during_capture = !routing_.empty();
  const bool may_wait = !routing_.capture_under_way(true);
  lock.unlock();
  for (const auto& [user, owner] : orders) {
    PendingFrees::Entry entry{nullptr, user.device, user.stream, nullptr};
    CUresult result = record_event(user, &entry.event, during_capture, may_wait);
    if (result == CUDA_SUCCESS && entry.event != nullptr) {
      const DriverScope scope(api_, context_, during_capture);
      result = api_.stream_wait_event(owner.stream.handle, entry.event, 0);
      // What was waited for stays so: a wait keeps what the event had recorded.
      surroundings_.event_pools.of(user.device).release(entry.event);
    }
    check_driver(api_, result, DriverEntryId::stream_wait_event,
                 [&] { return fmt::format("pool {} on device {}", to_string(pool.id), device_); });
  }
  orders.clear();  // perhaps the last that kept a stream alive
  lock.lock();
}

// Requires: the pool has no pending block, and its streams are ordered behind all uses.
void DeviceAllocator::free_live_blocks(const PrivatePool& pool, std::vector<void*>& freed, const Lock& lock) {
  for (Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    if (segment->owner->home != &pool) continue;
    // A block that is freed becomes one with its free neighbours: the walk goes on behind that.
    for (Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->state != BlockState::active_allocated) continue;
      freed.push_back(reinterpret_cast<void*>(block->address));
      api_.note_free(block->address, block->bytes, segment->stream.handle);
      block = free_now(block, lock);
    }
  }
}

// A free whose block nobody waits for.
Block* DeviceAllocator::free_now(Block* block, const Lock& lock) noexcept {
  map_of(*block).erase(block->address);
  recorder_.trace_freed([&] { return point_of(*block, lock); });
  return free_at_once(block);
}

// Cuts what is free where the record was into its blocks: all are handed out, and those that
// were not live are freed again, so that the statistics count what PyTorch counts.
// Requires: blocks reserved in the arena, entries in the block map. Takes the uses out of the record.
void DeviceAllocator::cut_segment(Segment* segment, State::SegmentRecord& record, std::vector<void*>& live,
                                  const Lock& lock) {
  for (Block* block = free_block_at(segment, record.address); const State::BlockRecord& wanted : record.blocks) {
    Request request;
    request.bytes = request.rounded = wanted.bytes;
    request.kind = segment->kind;
    request.tag = wanted.tag;
    block = take_into_use(block, request, wanted.bytes, lock)->next;
  }
  for (State::BlockRecord& wanted : record.blocks) {
    if (!wanted.live) continue;
    Block& block = block_map_.at(wanted.address);
    block.uses.swap(wanted.uses);
    block.has_uses = !block.uses.empty();
    live.push_back(reinterpret_cast<void*>(block.address));
    api_.note_allocate(block.address, block.bytes, segment->stream.handle, segment->owner->home);
  }
  // By address: a free may merge blocks that were walked already.
  for (const State::BlockRecord& wanted : record.blocks)
    if (!wanted.live) free_now(&block_map_.at(wanted.address), lock);
}

// The free block from there on; what is free before it becomes a block of its own.
Block* DeviceAllocator::free_block_at(Segment* segment, std::uint64_t address) noexcept {
  Block* block = segment->first;
  while (block->address + block->bytes <= address) block = block->next;
  if (block->address == address) return block;
  segment->pool->erase(block);
  split(block, address - block->address);
  put_in_pool(block);
  return block->next;
}

PoolRestored DeviceAllocator::restore_pool(const State& checkpoint) {
  Section section(*this);
  static_cast<void>(used_pool(checkpoint.pool));
  if (checkpoint.device != device_)
    throw InvalidArgument(fmt::format("pool {}: the checkpoint is of device {}, expected device {}",
                                      to_string(checkpoint.pool), checkpoint.device, device_));
  settle_pending_of(checkpoint.pool, section.lock);
  static_cast<void>(segments_named_by(checkpoint));
  order_behind_uses(used_pool(checkpoint.pool), section.lock);
  // The lock was given up: all is looked at again, and nothing fails from here on.
  settle_pending_of(checkpoint.pool, section.lock);
  const PrivatePool& pool = used_pool(checkpoint.pool);
  const std::vector<Segment*> segments = segments_named_by(checkpoint);
  State records = checkpoint;  // whose uses the blocks get
  PoolRestored restored;
  std::size_t blocks = 0;
  for (const State::SegmentRecord& record : checkpoint.segments) blocks += record.blocks.size();
  restored.freed.reserve(block_map_.size());
  restored.live.reserve(blocks);
  arena_.reserve(blocks + segments.size());
  block_map_.reserve(blocks);
  free_live_blocks(pool, restored.freed, section.lock);
  for (std::size_t i = 0; i < segments.size(); ++i)
    cut_segment(segments[i], records.segments[i], restored.live, section.lock);
  return restored;
}

}  // namespace cistern
