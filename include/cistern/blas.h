#pragma once

// cuBLAS handles: torch.cuda.current_blas_handle.
//
// Thread safety: any function may be called from any thread.

#include <cistern/export.h>

struct cublasContext;  // cuBLAS's own: cublasHandle_t is a pointer to it

namespace cistern {

using BlasHandle = cublasContext*;

// This thread's handle on its current device, bound to the current stream there: each call sets its stream
// and its workspace, whatever the caller gave it meanwhile. It is the caller's until the thread ends, and must
// not be destroyed. The workspace is memory of this allocator: 32 MiB from compute capability 9.0 on, 4 MiB
// before, of the stream (or of the pool that a capture allocates to), until a call on another stream, or during
// another capture, has bound it there; with that, cuBLAS allocates nothing itself.
// Loads cuBLAS on first use: what CISTERN_LIBCUBLAS names, else libcublas.so.13 or .12.
// Throws NotSupported where cuBLAS cannot be loaded, or cannot work on the device, as on simulated
// ones; LibraryError if it fails; OutOfMemoryError; DriverError. The handle is as it was then; if
// it is cuBLAS that fails, maybe on the current stream without a workspace of ours.
[[nodiscard]] CISTERN_EXPORT BlasHandle current_blas_handle();

}  // namespace cistern
