#pragma once

// The segments in a snapshot's file, and whether they can be what a device's memory was.
//
// Thread safety: a function of its arguments alone.

#include <cistern/snapshot.h>

#include <cstddef>
#include <vector>

#include "tools/document_place.h"
#include "tools/file_stacks.h"

namespace cistern {

// The segments of the list at `place`, by device, then address: of devices below `devices`, with tags below `tags`.
// Throws as DocumentPlace::fail does.
[[nodiscard]] std::vector<SegmentInfo> read_segments(const DocumentPlace& place, std::size_t devices,
                                                     FileStacks& stacks, std::size_t tags);

// The index in `tag` of a block or trace entry; kNoTag without one.
[[nodiscard]] TagIndex read_tag(const DocumentPlace& record, std::size_t tags);

}  // namespace cistern
