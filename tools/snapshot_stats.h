#pragma once

// What a snapshot's segments alone tell of its statistics: the current values.
//
// Thread safety: functions of their arguments.

#include <cistern/snapshot.h>
#include <cistern/stats.h>

#include <set>
#include <string>

namespace cistern {

// The indices of the devices that have a segment.
[[nodiscard]] std::set<int> devices_with_segments(const Snapshot& snapshot);
// Whether anything was ever counted: any number that is not its initial one.
[[nodiscard]] bool has_activity(const MemoryStats& stats);

// The current values of one device's statistics, counted from its segments and blocks. Peaks,
// totals and event counters stay 0: they are not to be had from there.
[[nodiscard]] MemoryStats current_stats_of_segments(const Snapshot& snapshot, int device);
// A summary table with `-`, in the same widths, for all but the current values.
[[nodiscard]] std::string without_history(std::string summary);

}  // namespace cistern
