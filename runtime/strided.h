#pragma once

// Strided work on devices: elements that lie apart, copied or added in stream order.
//
// Thread safety: all functions may be called from any thread.

#include <cistern/stream.h>

#include "runtime/strided_work.h"

namespace cistern {

// Queues the work on a stream; both sides are memory that its device reaches. Simplifies it before; no
// elements are nothing. Throws NotSupported where the driver cannot load kernels, DriverError.
void queue_strided(StridedWork work, const Stream& stream);

}  // namespace cistern
