// A library with the face of cuBLAS, by the Toolkit's own declarations, which keeps what it is told.
//
// CISTERN_FAKE_CUBLAS_FAILS   the name of a function, which fails with CUBLAS_STATUS_ALLOC_FAILED

#include <cublas_v2.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

struct cublasContext {
  cudaStream_t stream;
  void* workspace;
  size_t workspace_bytes;
};

namespace {

std::atomic<int> made{0};

bool fails(std::string_view function) {
  const char* chosen = std::getenv("CISTERN_FAKE_CUBLAS_FAILS");
  return chosen != nullptr && function == chosen;
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (fails("cublasCreate")) return CUBLAS_STATUS_ALLOC_FAILED;
  ++made;
  *handle = new cublasContext{};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  if (fails("cublasSetStream")) return CUBLAS_STATUS_ALLOC_FAILED;
  *handle = {stream, nullptr, 0};  // as cuBLAS does: a new stream resets the workspace
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  if (fails("cublasSetWorkspace")) return CUBLAS_STATUS_ALLOC_FAILED;
  handle->workspace = workspace;
  handle->workspace_bytes = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_ALLOC_FAILED ? "the resource allocation failed" : "another status";
}

// What a handle was told, and how many were made.
void cistern_fake_cublas_handle(cublasHandle_t handle, void** stream, void** workspace, size_t* bytes) {
  *stream = handle->stream;
  *workspace = handle->workspace;
  *bytes = handle->workspace_bytes;
}
int cistern_fake_cublas_made() { return made; }

}  // extern "C"
