#pragma once

// The process-wide heaps, for what works on them beside the free functions.

#include "allocator/device_heaps.h"

namespace cistern {

// Made by the first call. Throws as the driver's loading does; NotSupported in a forked child.
[[nodiscard]] DeviceHeaps& process_heaps();
// The same without making them: null before the first use.
[[nodiscard]] DeviceHeaps* process_heaps_if_made();

// cistern::record_stream for memory of which somebody knows a part: `address` is any byte of the block. Ignored if
// there is no such block.
void record_stream_around(const void* address, const Stream& stream);

}  // namespace cistern
