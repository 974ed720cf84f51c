#pragma once

// The histories and annotations in a snapshot's file.
//
// Thread safety: functions of their arguments alone.

#include <cistern/snapshot.h>

#include <vector>

#include "tools/document_place.h"
#include "tools/file_stacks.h"
#include "tools/text_copies.h"

namespace cistern {

// The histories of the list at `place`, a list a device; entries of unknown actions are left out, as viewers do.
// Adds to `snapshot.texts` what `user_metadata` says, each text once; `snapshot.tags` must have been read.
// Throws as DocumentPlace::fail does.
[[nodiscard]] std::vector<std::vector<TraceEntry>> read_histories(const DocumentPlace& place, FileStacks& stacks,
                                                                  Snapshot& snapshot);
[[nodiscard]] ExternalAnnotation read_annotation(const DocumentPlace& place, TextCopies& texts);

}  // namespace cistern
