#pragma once

// The nine calls of the CUDA runtime that CUB's allocator makes, over a simulated driver that keeps
// accounts only. Not for anything else: one device, and results that CUB does not look at are
// not told apart.

#include <cuda_runtime_api.h>

namespace cistern {

// The n-th stream of the shim's device.
[[nodiscard]] cudaStream_t shim_stream(unsigned number);

}  // namespace cistern
