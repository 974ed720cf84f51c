#include "tests/history/trace_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace cistern {

namespace {

// The last element at or before `key`; the end if there is none.
template <class Map>
auto at_or_before(Map& map, std::uint64_t key) {
  const auto after = map.upper_bound(key);
  return after == map.begin() ? map.end() : std::prev(after);
}

}  // namespace

TraceReplay::TraceReplay(const std::vector<TraceEntry>& trace) {
  for (const TraceEntry& entry : trace) apply(entry);
}

bool TraceReplay::is_inside_a_segment(std::uint64_t address, std::int64_t bytes) const {
  const std::uint64_t end = address + static_cast<std::uint64_t>(bytes);
  const auto segment = at_or_before(segments, address);
  const auto pages = at_or_before(mapped, address);
  return (segment != segments.end() && end <= segment->first + static_cast<std::uint64_t>(segment->second)) ||
         (pages != mapped.end() && end <= pages->first + static_cast<std::uint64_t>(pages->second.bytes));
}

const char* TraceReplay::map(const TraceEntry& entry) {
  Mapped pages{entry.size, entry.stream, entry.pool_id};
  std::uint64_t address = entry.address;
  const auto joins = [&](const auto& other) {
    return other->second.stream == pages.stream && other->second.pool_id == pages.pool_id;
  };
  const auto after = mapped.lower_bound(address);
  if (const auto before = at_or_before(mapped, address); before != mapped.end()) {
    const std::uint64_t end = before->first + static_cast<std::uint64_t>(before->second.bytes);
    if (end > address) return "there are pages already";
    if (end == address && joins(before)) {
      address = before->first;
      pages.bytes += before->second.bytes;
    }
  }
  if (after != mapped.end()) {
    const std::uint64_t end = entry.address + static_cast<std::uint64_t>(entry.size);
    if (end > after->first) return "there are pages already";
    if (end == after->first && joins(after)) {
      pages.bytes += after->second.bytes;
      mapped.erase(after);
    }
  }
  mapped[address] = pages;
  return nullptr;
}

const char* TraceReplay::unmap(const TraceEntry& entry) {
  if (overlaps_a_block(entry.address, entry.size)) return "a block is in it";
  const auto found = at_or_before(mapped, entry.address);
  if (found == mapped.end()) return "there are no such pages";
  const std::uint64_t first = found->first;
  const Mapped pages = found->second;
  const std::uint64_t last = first + static_cast<std::uint64_t>(pages.bytes);
  const std::uint64_t end = entry.address + static_cast<std::uint64_t>(entry.size);
  if (end > last || pages.stream != entry.stream || pages.pool_id != entry.pool_id) return "there are no such pages";
  mapped.erase(found);
  const auto put = [&](std::uint64_t from, std::uint64_t to) {
    if (from != to) mapped[from] = {static_cast<std::int64_t>(to - from), pages.stream, pages.pool_id};
  };
  put(first, entry.address);
  put(end, last);
  return nullptr;
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
    case TraceAction::segment_map:
      if (const char* why = map(entry)) fault(why);
      break;
    case TraceAction::segment_unmap:
      if (const char* why = unmap(entry)) fault(why);
      break;
    default:
      break;
  }
}

std::string TraceReplay::difference_from(const Snapshot& snapshot) const {
  if (!faults.empty()) return faults.front();
  std::map<std::uint64_t, std::int64_t> their_segments;
  std::map<std::uint64_t, Block> their_blocks;
  std::map<std::uint64_t, Mapped> their_mapped;
  for (const SegmentInfo& segment : snapshot.segments) {
    if (segment.is_expandable)
      their_mapped[segment.address] = {segment.total_size, segment.stream, segment.segment_pool_id};
    else
      their_segments[segment.address] = segment.total_size;
    for (const BlockInfo& block : segment.blocks)
      if (block.state != BlockState::inactive)
        their_blocks[block.address] = {block.requested_size, block.state == BlockState::active_pending_free};
  }
  if (segments != their_segments)
    return fmt::format("{} segments by the trace, {} in the snapshot", segments.size(), their_segments.size());
  if (mapped != their_mapped)
    return fmt::format("{} mapped ranges by the trace, {} in the snapshot, or others", mapped.size(),
                       their_mapped.size());
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
