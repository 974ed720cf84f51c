#pragma once

// The settings and the statistics in a snapshot's file.
//
// Thread safety: functions of their arguments alone.

#include <cistern/snapshot.h>
#include <cistern/stats.h>

#include "tools/document_place.h"

namespace cistern {

// What one version of PyTorch or another lacks keeps its default. Both throw as DocumentPlace::fail does.
[[nodiscard]] AllocatorSettings read_settings(const DocumentPlace& place);
[[nodiscard]] MemoryStats read_device_stats(const DocumentPlace& place);

}  // namespace cistern
