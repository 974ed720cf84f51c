#include "tools/snapshot_stats.h"

#include <fmt/format.h>

#include <string_view>

namespace cistern {
namespace {

// Adds to the sum and to the part that the segment's pool is.
void add(PoolStat& stat, bool is_large, std::int64_t amount) {
  stat.all.current += amount;
  (is_large ? stat.large_pool : stat.small_pool).current += amount;
}

void add_block(MemoryStats& stats, const SegmentInfo& segment, const BlockInfo& block) {
  if (block.state == BlockState::inactive) {
    // A free block that is a segment by itself could be given back, as free pages of an
    // expandable one can: neither is a split.
    if (segment.blocks.size() == 1 || segment.is_expandable) return;
    add(stats.inactive_split, segment.is_large, 1);
    add(stats.inactive_split_bytes, segment.is_large, block.size);
    return;
  }
  add(stats.active, segment.is_large, 1);
  add(stats.active_bytes, segment.is_large, block.size);
  add(stats.requested_bytes, segment.is_large, block.requested_size);
  if (block.state != BlockState::active_allocated) return;
  add(stats.allocation, segment.is_large, 1);
  add(stats.allocated_bytes, segment.is_large, block.size);
  if (stats.max_split_size >= 0 && block.size >= stats.max_split_size) ++stats.oversize_allocations.current;
}

// Where the summary's rows and its line of counters keep their values.
constexpr std::size_t kFirstRow = 6;
constexpr std::size_t kFirstBar = 24;
constexpr std::size_t kHistoryCells[] = {39, 52, 65};
constexpr std::size_t kCellWidth = 10;
constexpr std::size_t kCounterLine = 3;

// Replaces the number after `name` by a dash of the same width.
void replace_counter(std::string& line, std::string_view name) {
  const std::size_t start = line.find(name) + name.size();
  const std::size_t end = line.find(' ', start);
  line.replace(start, end - start, fmt::format("{:<{}}", "-", end - start));
}

}  // namespace

std::set<int> devices_with_segments(const Snapshot& snapshot) {
  std::set<int> devices;
  for (const SegmentInfo& segment : snapshot.segments) devices.insert(segment.device);
  return devices;
}

bool has_activity(const MemoryStats& stats) {
  MemoryStats untouched;
  untouched.max_split_size = stats.max_split_size;  // a setting
  return stats != untouched;
}

MemoryStats current_stats_of_segments(const Snapshot& snapshot, int device) {
  MemoryStats stats;
  stats.max_split_size = snapshot.settings.max_split_size;
  for (const SegmentInfo& segment : snapshot.segments) {
    if (segment.device != device) continue;
    add(stats.reserved_bytes, segment.is_large, segment.total_size);
    for (const BlockInfo& block : segment.blocks) add_block(stats, segment, block);
    // Mapping pages into an expandable segment is not counted as a segment.
    if (segment.is_expandable) continue;
    add(stats.segment, segment.is_large, 1);
    if (stats.max_split_size >= 0 && segment.total_size >= stats.max_split_size) ++stats.oversize_segments.current;
  }
  return stats;
}

std::string without_history(std::string summary) {
  std::string result;
  for (std::size_t number = 0; !summary.empty(); ++number) {
    std::string line = summary.substr(0, summary.find('\n') + 1);
    summary.erase(0, line.size());
    if (number == kCounterLine) {
      replace_counter(line, "OOMs: ");
      replace_counter(line, "retries: ");
    } else if (number >= kFirstRow && line[kFirstBar] == '|') {
      for (const std::size_t cell : kHistoryCells)
        line.replace(cell, kCellWidth, fmt::format("{:>{}}", "-", kCellWidth));
    }
    result += line;
  }
  return result;
}

}  // namespace cistern
