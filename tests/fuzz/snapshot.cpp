// Snapshots: any bytes are read or refused in one line, and what is written of one that was
// read is read back and written the same. Its statistics are sums that do not overflow.

#include <sstream>

#include "tests/fuzz/property.h"
#include "tools/snapshot_reader.h"
#include "tools/snapshot_stats.h"

namespace cistern {
namespace {

std::string written(const Snapshot& snapshot) {
  std::ostringstream out;
  write_json(snapshot, out);
  return out.str();
}

// Parts and sums fit each other; one that overflowed is below its part, or negative.
void require_sums(const Snapshot& snapshot, int device) {
  const MemoryStats stats = current_stats_of_segments(snapshot, device);
  const auto is_within = [](std::int64_t part, std::int64_t whole) { return 0 <= part && part <= whole; };
  for (Stat PoolStat::*const pool : {&PoolStat::all, &PoolStat::small_pool, &PoolStat::large_pool}) {
    const std::int64_t reserved = (stats.reserved_bytes.*pool).current;
    const std::int64_t active = (stats.active_bytes.*pool).current;
    require(is_within(reserved, stats.reserved_bytes.all.current), "a pool's memory is part of all");
    require(is_within(active, reserved), "active bytes are reserved");
    require(is_within((stats.allocated_bytes.*pool).current, active), "allocated bytes are active");
    require(is_within((stats.requested_bytes.*pool).current, active), "requested bytes are active");
    require(is_within((stats.inactive_split_bytes.*pool).current, reserved - active), "splits are reserved");
  }
}

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Snapshot snapshot;
  try {
    snapshot = parse_snapshot(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.json");
  } catch (const Error& error) {
    require_one_line(error);
    return 0;
  }
  for (const SegmentInfo& segment : snapshot.segments) {
    std::int64_t bytes = 0;
    for (const BlockInfo& block : segment.blocks) bytes += block.size;
    require(bytes == segment.total_size, "blocks tile their segment");
  }
  for (const int device : devices_with_segments(snapshot)) require_sums(snapshot, device);
  const std::string text = written(snapshot);
  require(written(parse_snapshot(text, "written.json")) == text, "what is written is read back");
  return 0;
}
