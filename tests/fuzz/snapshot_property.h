#pragma once

// What holds of every snapshot file that is read: it is written in each form and read back whole, and where
// it is a possible state of a device, its figures are sums that do not overflow.

#include <cistern/snapshot.h>

#include <sstream>

#include "tests/document_equality.h"
#include "tests/fuzz/property.h"
#include "tools/snapshot_reader.h"
#include "tools/snapshot_stats.h"

namespace cistern {

template <class Write>
std::string text_of(Write&& write) {
  std::ostringstream out;
  write(out);
  return out.str();
}

// Nothing where the form cannot hold what the file does, which is said in one line.
inline void require_read_back(const SnapshotFile& file, SnapshotForm form, int protocol) {
  std::string text;
  try {
    text = text_of([&](std::ostream& out) { write_snapshot_file(file, form, out, protocol); });
  } catch (const Error& error) {
    require_one_line(error);
    return;
  }
  const SnapshotFile again = parse_snapshot_file(text, "written");
  require(again.form == form, "the form is told by the content");
  require(is_same_snapshot(file.document, again.document), "what is written is read back");
}

// Parts and sums fit each other; one that overflowed is below its part, or negative.
inline void require_sums(const Snapshot& snapshot, int device) {
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

inline void require_values_written_back(const Snapshot& snapshot) {
  const auto as_json = [](const Snapshot& of) { return text_of([&](std::ostream& out) { write_json(of, out); }); };
  const std::string json = as_json(snapshot);
  require(as_json(parse_snapshot(json, "written.json")) == json, "values written as JSON are read back");
  const auto as_torch = [](const Snapshot& of) {
    return text_of([&](std::ostream& out) { write_torch_json(of, out); });
  };
  std::string torch_json, pickle;
  try {
    torch_json = as_torch(snapshot);
    pickle = text_of([&](std::ostream& out) { write_pickle(snapshot, out); });
  } catch (const Error& error) {
    require_one_line(error);
    return;
  }
  require(as_torch(parse_snapshot(torch_json, "torch.json")) == torch_json, "PyTorch's JSON is read back");
  require(as_torch(parse_snapshot(pickle, "torch.pickle")) == torch_json, "a pickle is read back");
}

inline void require_readable_snapshot(std::string_view text) {
  SnapshotFile file;
  try {
    file = parse_snapshot_file(text, "fuzz");
  } catch (const Error& error) {
    require_one_line(error);
    return;
  }
  require_read_back(file, SnapshotForm::json, 4);
  require_read_back(file, SnapshotForm::torch_json, 4);
  require_read_back(file, SnapshotForm::pickle, 2);
  require_read_back(file, SnapshotForm::pickle, 4);
  Snapshot snapshot;
  try {
    snapshot = snapshot_of(file);
  } catch (const Error& error) {
    require_one_line(error);
    return;
  }
  for (const SegmentInfo& segment : snapshot.segments) {
    std::int64_t bytes = 0;
    for (const BlockInfo& block : segment.blocks) bytes += block.size;
    require(bytes == segment.total_size, "blocks tile their segment");
  }
  for (const int device : devices_with_segments(snapshot)) require_sums(snapshot, device);
  require_values_written_back(snapshot);
}

}  // namespace cistern
