#include "tests/history/trace_replay.h"

#include <fmt/format.h>

#include <algorithm>

namespace cistern {

TraceReplay::TraceReplay(const std::vector<TraceEntry>& trace) {
  for (const TraceEntry& entry : trace) apply(entry);
}

bool TraceReplay::is_inside_a_segment(std::uint64_t address, std::int64_t bytes) const {
  auto after = segments.upper_bound(address);
  if (after == segments.begin()) return false;
  --after;
  return address + static_cast<std::uint64_t>(bytes) <= after->first + static_cast<std::uint64_t>(after->second);
}

bool TraceReplay::overlaps_a_block(std::uint64_t address, std::int64_t bytes) const {
  const auto after = blocks.lower_bound(address);
  if (after != blocks.end() && after->first < address + static_cast<std::uint64_t>(bytes)) return true;
  if (after == blocks.begin()) return false;
  const auto before = std::prev(after);
  return before->first + static_cast<std::uint64_t>(before->second.requested) > address;
}

void TraceReplay::apply(const TraceEntry& entry) {
  ++counts[entry.action];
  const auto fault = [&](const char* why) {
    faults.push_back(
        fmt::format("{} of {} bytes at {:#x}: {}", to_string(entry.action), entry.size, entry.address, why));
  };
  switch (entry.action) {
    case TraceAction::segment_alloc:
      if (!segments.emplace(entry.address, entry.size).second) fault("the segment is there already");
      break;
    case TraceAction::segment_free: {
      const auto segment = segments.find(entry.address);
      if (segment == segments.end() || segment->second != entry.size) {
        fault("there is no such segment");
        break;
      }
      if (overlaps_a_block(entry.address, entry.size)) fault("a block is in it");
      segments.erase(segment);
      break;
    }
    case TraceAction::alloc:
      if (!is_inside_a_segment(entry.address, entry.size)) fault("it is in no segment");
      if (overlaps_a_block(entry.address, entry.size)) fault("another block is there");
      blocks[entry.address] = {entry.size, false};
      break;
    case TraceAction::free_requested: {
      const auto block = blocks.find(entry.address);
      if (block == blocks.end() || block->second.pending || block->second.requested != entry.size)
        fault("there is no such live block");
      else
        block->second.pending = true;
      break;
    }
    case TraceAction::free_completed: {
      const auto block = blocks.find(entry.address);
      if (block == blocks.end() || !block->second.pending || block->second.requested != entry.size)
        fault("there is no such freed block");
      else
        blocks.erase(block);
      break;
    }
    default:
      break;
  }
}

std::string TraceReplay::difference_from(const Snapshot& snapshot) const {
  if (!faults.empty()) return faults.front();
  std::map<std::uint64_t, std::int64_t> their_segments;
  std::map<std::uint64_t, Block> their_blocks;
  for (const SegmentInfo& segment : snapshot.segments) {
    their_segments[segment.address] = segment.total_size;
    for (const BlockInfo& block : segment.blocks)
      if (block.state != BlockState::inactive)
        their_blocks[block.address] = {block.requested_size, block.state == BlockState::active_pending_free};
  }
  if (segments != their_segments)
    return fmt::format("{} segments by the trace, {} in the snapshot", segments.size(), their_segments.size());
  const auto equal = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.requested == b.second.requested && a.second.pending == b.second.pending;
  };
  if (!std::equal(blocks.begin(), blocks.end(), their_blocks.begin(), their_blocks.end(), equal))
    return fmt::format("{} blocks by the trace, {} in the snapshot, or others", blocks.size(), their_blocks.size());
  return "";
}

std::vector<std::string> actions_and_sizes(const std::vector<TraceEntry>& trace) {
  std::vector<std::string> lines;
  for (const TraceEntry& entry : trace) lines.push_back(fmt::format("{} {}", to_string(entry.action), entry.size));
  return lines;
}

}  // namespace cistern
