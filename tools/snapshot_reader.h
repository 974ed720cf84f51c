#pragma once

// Reads snapshots as values: cistern's JSON, PyTorch's JSON and PyTorch's pickles, plain or gzip'd.
//
// Thread safety: functions of their arguments alone.

#include <cistern/snapshot.h>

#include <functional>
#include <string>
#include <string_view>

#include "tools/snapshot_file.h"

namespace cistern {

// Reads the snapshot at `path`, "-" for standard input: the segments by device and address, settings,
// statistics, histories, annotations, tags and stacks; equal stacks have one index, whatever the file's form.
// What a snapshot must have is checked: every key of a segment and a block but `frames` and `tag`, their
// types, blocks that tile their segment, sizes that add up, segments that do not overlap and
// whose sums are below 2^63; of an entry the keys that its action has; indices that name something.
// `allocator_settings`, `device_stats`, `external_annotations` and `tags` may be absent. Keys that are not known,
// and entries of actions that are not, are left out: read_snapshot_file() keeps them.
// Memory: the file's as read_snapshot_file() says, and 80 bytes an entry or block.
// Throws InvalidArgument, one line, for anything else.
// `progress`, if any, hears now and then which share of the file was read.
[[nodiscard]] Snapshot read_snapshot(const std::string& path, const std::function<void(double share)>& progress = {});
// The same of a text in memory, called `name` in errors.
[[nodiscard]] Snapshot parse_snapshot(std::string_view text, std::string_view name);
// The same of a file that was read.
[[nodiscard]] Snapshot snapshot_of(const SnapshotFile& file);

}  // namespace cistern
