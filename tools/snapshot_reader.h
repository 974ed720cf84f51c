#pragma once

// Reads snapshots: the JSON that write_json writes, and PyTorch's snapshot as JSON.
//
// Thread safety: functions of their arguments alone.

#include <cistern/snapshot.h>

#include <string>
#include <string_view>

namespace cistern {

// Reads the snapshot at `path`. What a snapshot must have is checked: every key of a segment
// and a block but `frames`, their types, blocks that tile their segment, sizes that add up,
// segments that do not overlap and whose sums are below 2^63.
// `allocator_settings` and `device_stats` may be absent; keys that are not known are ignored.
// Throws InvalidArgument "PATH:LINE: 'text': expected ..." for anything else.
[[nodiscard]] Snapshot read_snapshot(const std::string& path);
// The same of a text in memory, called `name` in errors.
[[nodiscard]] Snapshot parse_snapshot(std::string_view text, std::string_view name);

}  // namespace cistern
