#include "bench/cuda_runtime_shim.h"

#include <cistern/simulated.h>

#include <array>

#include "runtime/driver_api.h"

namespace {

struct Shim {
  static constexpr std::size_t kStreams = 16;
  cistern::SimulatedDriver driver{{.capacity_bytes = std::size_t{1} << 40, .backing = cistern::Backing::none}};
  const cistern::DriverApi& api = driver.api();
  CUcontext context = nullptr;
  std::array<cistern::StreamHandle, kStreams> streams{};

  Shim() {
    api.init(0);
    api.primary_ctx_retain(&context, 0);
    for (auto& stream : streams) stream = driver.create_stream();
  }
};

// Never destroyed, as the runtime is not.
Shim& shim() {
  static Shim& made = *new Shim();
  return made;
}

// The driver, with the context current on this thread as the runtime has it from a thread's first call on.
const cistern::DriverApi& api() {
  static thread_local const CUresult current = shim().api.ctx_set_current(shim().context);
  static_cast<void>(current);
  return shim().api;
}

cudaError_t as_runtime(CUresult result) {
  switch (result) {
    case CUDA_SUCCESS:
      return cudaSuccess;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return cudaErrorMemoryAllocation;
    case CUDA_ERROR_NOT_READY:
      return cudaErrorNotReady;
    default:
      return cudaErrorUnknown;
  }
}

thread_local int current_device = 0;

}  // namespace

namespace cistern {
cudaStream_t shim_stream(unsigned number) { return shim().streams[number % Shim::kStreams]; }
}  // namespace cistern

#define CISTERN_SHIM extern "C" __attribute__((visibility("hidden"))) cudaError_t CUDARTAPI

CISTERN_SHIM cudaMalloc(void** pointer, size_t bytes) {
  CUdeviceptr address = 0;
  const CUresult result = api().mem_alloc(&address, bytes);
  *pointer = reinterpret_cast<void*>(address);
  return as_runtime(result);
}
CISTERN_SHIM cudaFree(void* pointer) { return as_runtime(api().mem_free(reinterpret_cast<CUdeviceptr>(pointer))); }
CISTERN_SHIM cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
CISTERN_SHIM cudaSetDevice(int device) {
  current_device = device;
  return cudaSuccess;
}
CISTERN_SHIM cudaGetLastError() { return cudaSuccess; }
CISTERN_SHIM cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return as_runtime(api().event_create(event, flags));
}
CISTERN_SHIM cudaEventDestroy(cudaEvent_t event) { return as_runtime(api().event_destroy(event)); }
CISTERN_SHIM cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return as_runtime(api().event_record(event, stream));
}
CISTERN_SHIM cudaEventQuery(cudaEvent_t event) { return as_runtime(api().event_query(event)); }
