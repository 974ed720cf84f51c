#pragma once

// The event that a free waits for: recorded on a stream that used the block, when the free is asked for.
//
// Shared by the heaps of devices and of the host. Never throws and holds no lock: the driver is called.
// Thread safety: any function may be called from any thread.

#include "allocator/block.h"
#include "allocator/event_pools.h"
#include "runtime/context.h"

namespace cistern {

// Whether the handle still means the stream that was recorded. It does not when that was another thread's default
// stream, which has no handle here, or when a stream that nobody kept alive was destroyed, and its handle perhaps
// given to another: asked of the driver where nobody registered the stream. For a default stream the context of its
// device must be current.
[[nodiscard]] bool names_its_stream(Contexts& contexts, const StreamUse& use);

// A default stream is that of the current context.
[[nodiscard]] inline bool names_its_context(const StreamIdentity& stream) noexcept {
  return !is_legacy(stream.handle) && stream.handle != per_thread_handle();
}

// Whether a capture has the stream's work. For a default stream the context of its device must be current.
[[nodiscard]] bool is_captured_now(const DriverApi& api, const StreamIdentity& stream) noexcept;

// What `event` holds on return is to be waited for; else, after success, the work is done already. It may bring an
// idle event, which is recorded without a context being made current where the stream has one of its own. A stream that
// captures gets none (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED): the capture would take the event, and whoever asks for it
// later would be refused for ever. Nor does a stream without a handle unless `may_wait`: the wait for its device
// invalidates captures.
[[nodiscard]] CUresult record_guard(Contexts& contexts, EventPools& pools, const StreamUse& use, bool during_capture,
                                    bool may_wait, CUevent* event) noexcept;

}  // namespace cistern
