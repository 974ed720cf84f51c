#pragma once

// Tells the layer above that a stream of the process's driver is about to be destroyed, so that
// what it keeps for the stream can be ordered behind its work while the handle still means it.
//
// Thread safety: any function may be called from any thread.

#include "runtime/stream_access.h"

namespace cistern {

using StreamEndObserver = void (*)(const StreamIdentity& stream, int device) noexcept;

// One observer, for the rest of the process.
void observe_stream_ends(StreamEndObserver observer) noexcept;
// Called before the stream is destroyed, with its device's context current and no lock held.
void announce_stream_end(const DriverApi& api, CUstream stream, int device) noexcept;

}  // namespace cistern
