#include "runtime/cublas.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include "runtime/shared_library.h"

namespace cistern {
namespace {

// cuBLAS's declarations as far as they are used here ("cuBLAS", "Using the cuBLAS API").
constexpr int kCublasSuccess = 0;

struct Cublas {
  SharedLibrary library{"cuBLAS", "CISTERN_LIBCUBLAS", {"libcublas.so.13", "libcublas.so.12"}};
  int (*create)(BlasHandle* handle) = nullptr;
  int (*set_stream)(BlasHandle handle, CUstream stream) = nullptr;
  int (*set_workspace)(BlasHandle handle, void* workspace, std::size_t bytes) = nullptr;
  const char* (*status_string)(int status) = nullptr;

  Cublas() {
    library.find(create, "cublasCreate_v2");
    library.find(set_stream, "cublasSetStream_v2");
    library.find(set_workspace, "cublasSetWorkspace_v2");
    library.find(status_string, "cublasGetStatusString");
  }
};

// A load that failed is tried again by the next call.
const Cublas& cublas() {
  static const Cublas& cublas = *new Cublas;
  return cublas;
}

void check_cublas(int status, const char* call) {
  if (status == kCublasSuccess) return;
  throw LibraryError(status, call, fmt::format("{}: {} (status {})", call, cublas().status_string(status), status));
}

}  // namespace

BlasHandle make_blas_handle(const DriverApi& api) {
  if (!api.has_cuda_libraries)
    throw NotSupported(
        "cuBLAS launches kernels of its own, which a simulated device does not run: expected a CUDA one");
  BlasHandle handle = nullptr;
  check_cublas(cublas().create(&handle), "cublasCreate");
  return handle;
}

void bind_blas_handle(BlasHandle handle, CUstream stream, void* workspace, std::size_t bytes) {
  // In this order: a new stream resets the workspace.
  check_cublas(cublas().set_stream(handle, stream), "cublasSetStream");
  check_cublas(cublas().set_workspace(handle, workspace, bytes), "cublasSetWorkspace");
}

}  // namespace cistern
