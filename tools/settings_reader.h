#pragma once

// The settings and the statistics in a snapshot's file.
//
// Thread safety: functions of their arguments alone.

#include <cistern/snapshot.h>
#include <cistern/stats.h>

#include "tools/place.h"

namespace cistern {

// What one version of PyTorch or another lacks keeps its default. Both throw as Place::fail does.
[[nodiscard]] AllocatorSettings read_settings(const Place& place);
[[nodiscard]] MemoryStats read_device_stats(const Place& place);

}  // namespace cistern
