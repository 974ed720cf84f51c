#pragma once

// The process-wide heaps, for what works on them beside the free functions.

#include "allocator/device_heaps.h"

namespace cistern {

// Made by the first call. Throws as the driver's loading does; NotSupported in a forked child.
[[nodiscard]] DeviceHeaps& process_heaps();
// The same without making them: null before the first use.
[[nodiscard]] DeviceHeaps* process_heaps_if_made();
// What can be asked for figures, in a forked child too; null before cistern is initialised.
[[nodiscard]] DeviceHeaps* process_heaps_for_reading();
// Whether they are the parent's: frees do nothing then.
[[nodiscard]] bool in_forked_child() noexcept;
// Throws the NotSupported of such a child.
[[noreturn]] void refuse_after_fork();

// cistern::allocate where a hit suffices, which needs nobody to keep the stream alive; else null, with nothing done.
[[nodiscard]] void* allocate_at_hand(std::size_t bytes, const Stream& stream);

// cistern::record_stream for memory of which somebody knows a part: `address` is any byte of the block. Ignored if
// there is no such block.
void record_stream_around(const void* address, const Stream& stream);

}  // namespace cistern
