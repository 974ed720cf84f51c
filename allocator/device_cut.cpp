#include "allocator/device_cut.h"

#include "allocator/address_range.h"
#include "allocator/private_pools.h"

#include <algorithm>
#include <utility>

namespace cistern {
namespace {

// Some room, for what comes while no lock is held.
std::size_t with_slack(std::size_t count) { return count + count / 16 + 64; }

// Makes the memory be there: a page that is touched first under the lock keeps others waiting.
template <class Element>
void make_empty_room(std::vector<Element>& elements, std::size_t count) {
  elements.resize(with_slack(count));
  elements.clear();
}

}  // namespace

SegmentImage image_of(const Segment& segment) noexcept {
  const AddressRange* range = segment.range;
  const PrivatePool* home = segment.owner->home;
  return {segment.address,
          segment.bytes,
          stream_number(segment.stream),
          home == nullptr ? PoolId{} : home->id,
          range == nullptr ? 0 : range->address,
          range == nullptr ? 0 : range->bytes,
          segment.stack,
          segment.kind};
}

SegmentInfo describe(const SegmentImage& image, int device) {
  SegmentInfo info;
  info.device = device;
  info.address = image.address;
  info.total_size = static_cast<std::int64_t>(image.bytes);
  info.stream = image.stream;
  info.is_large = image.kind == PoolKind::large;
  info.segment_pool_id = {static_cast<std::int64_t>(image.pool.first), static_cast<std::int64_t>(image.pool.second)};
  info.is_expandable = image.range_address != 0;
  info.range_address = image.range_address;
  info.range_size = static_cast<std::int64_t>(image.range_bytes);
  info.stack = static_cast<StackIndex>(image.stack) - 1;
  return info;
}

bool continues(const SegmentInfo& low, const SegmentInfo& high) {
  return low.is_expandable && high.is_expandable &&
         low.address + static_cast<std::uint64_t>(low.total_size) == high.address && low.stream == high.stream &&
         low.is_large == high.is_large && low.segment_pool_id == high.segment_pool_id;
}

void lengthen(SegmentInfo& low, const SegmentInfo& high) {
  low.total_size += high.total_size;
  low.allocated_size += high.allocated_size;
  low.active_size += high.active_size;
  low.requested_size += high.requested_size;
}

void count(SegmentInfo& segment, const BlockInfo& block) {
  if (block.state == BlockState::active_allocated) segment.allocated_size += block.size;
  if (block.state == BlockState::inactive) return;
  segment.active_size += block.size;
  segment.requested_size += block.requested_size;
}

void DeviceCut::reserve(const Size& size) {
  make_empty_room(segments, size.segments);
  make_empty_room(first, size.segments);
  blocks.reserve({with_slack(size.blocks.images), with_slack(size.blocks.chunks)});
  // Where nothing is written down nothing is likely to come.
  if (size.history.entries != 0) history.entries.reserve(with_slack(size.history.entries));
  make_empty_room(history.stacks.stacks, size.history.stacks);
  make_empty_room(history.texts, size.history.texts);
  paged.reserve(size.paged);
}

bool DeviceCut::has_room_for(const Size& size) const {
  return segments.capacity() >= size.segments && first.capacity() >= size.segments &&
         blocks.has_room_for(size.blocks) && history.entries.has_room_for(size.history.entries) &&
         history.stacks.stacks.capacity() >= size.history.stacks && history.texts.capacity() >= size.history.texts &&
         paged.has_room_for(size.paged);
}

void DeviceCut::move_to(Snapshot& snapshot, int device, SnapshotStacks& stacks, const TickClock& clock) {
  std::vector<StackIndex> known(history.stacks.stacks.size(), kNoStack);  // indices of the heap's numbers
  const auto name = [&](StackIndex& stack) {
    if (stack == kNoStack) return;
    StackIndex& index = known[static_cast<std::size_t>(stack)];
    if (index == kNoStack) index = stacks.index_of(history.stacks.stacks[static_cast<std::size_t>(stack)]);
    stack = index;
  };
  std::vector<SegmentInfo> described;
  described.reserve(segments.size());
  for (const SegmentImage& image : segments) described.push_back(describe(image, device));
  blocks.for_each(first, [&](std::size_t segment, const BlockImage& image) {
    BlockInfo block = describe(image);
    name(block.stack);
    count(described[segment], block);
    described[segment].blocks.push_back(block);
  });
  paged.lay_out(described);
  std::sort(described.begin(), described.end(),
            [](const SegmentInfo& a, const SegmentInfo& b) { return a.address < b.address; });
  const std::size_t of_others = snapshot.segments.size();
  for (SegmentInfo& segment : described) {
    name(segment.stack);
    segment.blocks.shrink_to_fit();  // a snapshot may be kept
    if (snapshot.segments.size() == of_others || !continues(snapshot.segments.back(), segment)) {
      snapshot.segments.push_back(std::move(segment));
      continue;
    }
    SegmentInfo& low = snapshot.segments.back();
    lengthen(low, segment);
    low.blocks.insert(low.blocks.end(), segment.blocks.begin(), segment.blocks.end());
  }
  snapshot.device_stats.push_back(stats);
  snapshot.settings.trace_alloc_overflowed = snapshot.settings.trace_alloc_overflowed || history.overflowed;
  std::vector<TraceEntry> entries = DeviceHistory::entries_of(history, TickClock::Conversion(clock));
  std::vector<std::int32_t> texts(history.texts.size(), -1);  // indices of the heap's numbers
  for (TraceEntry& entry : entries) {
    name(entry.stack);
    if (entry.user_metadata < 0) continue;
    const auto text = static_cast<std::size_t>(entry.user_metadata);
    if (texts[text] < 0) {
      texts[text] = static_cast<std::int32_t>(snapshot.texts.size());
      snapshot.texts.push_back(*history.texts[text]);
    }
    entry.user_metadata = texts[text];
  }
  snapshot.device_traces.push_back(std::move(entries));
}

}  // namespace cistern
