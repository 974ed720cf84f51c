#pragma once

// cuBLAS, as far as handles go. Loaded on first use, and never unloaded.
//
// Thread safety: any function may be called from any thread; a handle is one thread's at a time.

#include <cistern/blas.h>

#include <cstddef>

#include "runtime/driver_api.h"

namespace cistern {

// A handle for the device whose primary context is current. Throws NotSupported: the library
// (CISTERN_LIBCUBLAS if it is set, else libcublas.so.13 or .12) cannot be loaded or lacks a function, or
// the driver's devices run no kernels; LibraryError.
[[nodiscard]] BlasHandle make_blas_handle(const DriverApi& api);
// Binds a handle to a stream, and then its workspace. Throws LibraryError.
void bind_blas_handle(BlasHandle handle, CUstream stream, void* workspace, std::size_t bytes);

}  // namespace cistern
