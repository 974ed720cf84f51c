#pragma once

// Snapshots that a test makes up, block by block.

#include <cistern/snapshot.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cistern {

inline constexpr auto kLive = BlockState::active_allocated;
inline constexpr auto kFree = BlockState::inactive;
inline constexpr auto kPending = BlockState::active_pending_free;

struct MadeBlock {
  std::int64_t size;
  BlockState state = BlockState::active_allocated;
  StackIndex stack = kNoStack;
  TagIndex tag = kNoTag;
  std::int64_t unused = 0;  // of the size, not asked for
};

struct MadeSegment {
  std::uint64_t address;
  std::vector<MadeBlock> blocks;
  std::int64_t stream = 0;
  int device = 0;
  std::pair<std::int64_t, std::int64_t> pool{0, 0};
  bool is_expandable = false;
};

inline SegmentInfo make_segment(const MadeSegment& made) {
  SegmentInfo segment;
  segment.device = made.device;
  segment.address = made.address;
  segment.stream = made.stream;
  segment.segment_pool_id = made.pool;
  segment.is_expandable = made.is_expandable;
  for (const MadeBlock& block : made.blocks) {
    const std::int64_t requested = block.size - block.unused;
    segment.blocks.push_back({made.address + static_cast<std::uint64_t>(segment.total_size), block.size, requested,
                              block.state, block.stack, block.tag});
    segment.total_size += block.size;
    if (block.state == BlockState::active_allocated) segment.allocated_size += block.size;
    if (block.state == BlockState::inactive) continue;
    segment.active_size += block.size;
    segment.requested_size += requested;
  }
  segment.is_large = segment.total_size > (2 << 20);
  return segment;
}

// With a history as long as there are devices, and empty.
inline Snapshot make_snapshot(const std::vector<MadeSegment>& segments, int devices = 1) {
  Snapshot snapshot;
  for (const MadeSegment& segment : segments) snapshot.segments.push_back(make_segment(segment));
  snapshot.device_traces.resize(static_cast<std::size_t>(devices));
  return snapshot;
}

inline StackInfo make_stack(const std::vector<std::string>& functions) {
  StackInfo stack;
  for (const std::string& function : functions) {
    FrameInfo frame;
    frame.name = function;
    frame.filename = function + ".cpp";
    frame.line = static_cast<std::int64_t>(function.size());
    stack.push_back(frame);
  }
  return stack;
}

inline TraceEntry make_entry(TraceAction action, std::uint64_t address, std::int64_t size, std::int64_t time_us,
                             StackIndex stack = kNoStack) {
  TraceEntry entry;
  entry.action = action;
  entry.address = address;
  entry.size = size;
  entry.time_us = time_us;
  entry.stack = stack;
  return entry;
}

}  // namespace cistern
