#pragma once

// OwnStreams: the per-thread default streams of the calling thread, as the driver named them.
//
// The handle of such a stream means another one on each thread (CUDA Driver API, "Stream synchronization behavior"), so
// that no other thread can queue anything on it, and nobody can once its thread is over. What the thread's stream has
// cached would serve nobody then. Here each is kept from its first use on: the driver is asked for its id once; and
// when the thread ends, the heaps hear of it as by release_stream. The process's first thread ends with the process,
// and tells nobody.
//
// Thread safety: each thread has its own.

#include "allocator/heaps_link.h"
#include "runtime/stream_access.h"

#include <memory>

namespace cistern {

struct OwnStreams {
  // What the thread's stream on a device is; null: not kept. O(devices that the thread used it on).
  [[nodiscard]] static const StreamIdentity* find(const HeapsLink& link, int device) noexcept;
  // Until the thread ends. Nothing where that is under way, or without host memory: it is asked for again then. (The C
  // library takes some, once a thread, to note that something is to be done at its end, and may not go on without.)
  static void keep(const std::shared_ptr<HeapsLink>& link, int device, const StreamIdentity& stream) noexcept;
};

}  // namespace cistern
