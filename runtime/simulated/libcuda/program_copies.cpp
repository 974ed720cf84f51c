// Copies that name their direction. "CUDA Driver API", "Memory Management".

#include "runtime/simulated/libcuda/program_calls.h"

namespace cistern::simulated {
namespace {

CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// CUDA_SUCCESS if a CUdeviceptr is one: memory of a device, or page-locked memory at its device address.
CUresult check_pointer(const Call& call, CUdeviceptr pointer, std::size_t bytes) {
  {
    const std::lock_guard lock(call.state.mutex);
    if (bytes == 0 || !call.state.is_pageable(pointer, 1)) return CUDA_SUCCESS;
  }
  // Before cuInit, inside a host function and without a context that is not the first thing wrong.
  CUdevice device = 0;
  const CUresult refused = call.api.ctx_get_device(&device);
  return refused == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : refused;
}

bool is_device_memory(const Call& call, CUdeviceptr pointer) {
  const std::lock_guard lock(call.state.mutex);
  return call.state.is_device_address(pointer);
}

}  // namespace

CUresult memcpy_on_default_stream(const Call& call, CUdeviceptr destination, CUdeviceptr source, std::size_t bytes) {
  if (call.default_stream == CU_STREAM_LEGACY) return call.api.memcpy(destination, source, bytes);
  const CUresult refused = call.api.memcpy_async(destination, source, bytes, call.default_stream);
  if (refused != CUDA_SUCCESS || bytes == 0) return refused;
  // Between two places of device memory the host does not wait ("API synchronization behavior").
  if (is_device_memory(call, destination) && is_device_memory(call, source)) return CUDA_SUCCESS;
  return call.api.stream_synchronize(call.default_stream);
}

CUresult memcpy_htod(const Call& call, CUdeviceptr destination, const void* source, std::size_t bytes) {
  if (const CUresult invalid = check_pointer(call, destination, bytes); invalid != CUDA_SUCCESS) return invalid;
  return memcpy_on_default_stream(call, destination, address_of(source), bytes);
}

CUresult memcpy_dtoh(const Call& call, void* destination, CUdeviceptr source, std::size_t bytes) {
  if (const CUresult invalid = check_pointer(call, source, bytes); invalid != CUDA_SUCCESS) return invalid;
  return memcpy_on_default_stream(call, address_of(destination), source, bytes);
}

CUresult memcpy_dtod(const Call& call, CUdeviceptr destination, CUdeviceptr source, std::size_t bytes) {
  if (const CUresult invalid = check_pointer(call, destination, bytes); invalid != CUDA_SUCCESS) return invalid;
  if (const CUresult invalid = check_pointer(call, source, bytes); invalid != CUDA_SUCCESS) return invalid;
  return memcpy_on_default_stream(call, destination, source, bytes);
}

CUresult memcpy_htod_async(const Call& call, CUdeviceptr destination, const void* source, std::size_t bytes,
                           CUstream stream) {
  if (const CUresult invalid = check_pointer(call, destination, bytes); invalid != CUDA_SUCCESS) return invalid;
  return call.api.memcpy_async(destination, address_of(source), bytes, stream);
}

CUresult memcpy_dtoh_async(const Call& call, void* destination, CUdeviceptr source, std::size_t bytes,
                           CUstream stream) {
  if (const CUresult invalid = check_pointer(call, source, bytes); invalid != CUDA_SUCCESS) return invalid;
  return call.api.memcpy_async(address_of(destination), source, bytes, stream);
}

CUresult memcpy_dtod_async(const Call& call, CUdeviceptr destination, CUdeviceptr source, std::size_t bytes,
                           CUstream stream) {
  if (const CUresult invalid = check_pointer(call, destination, bytes); invalid != CUDA_SUCCESS) return invalid;
  if (const CUresult invalid = check_pointer(call, source, bytes); invalid != CUDA_SUCCESS) return invalid;
  return call.api.memcpy_async(destination, source, bytes, stream);
}

// "This function is asynchronous with respect to the host."
CUresult memcpy_peer(const Call& call, CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                     CUcontext source_context, std::size_t bytes) {
  return call.api.memcpy_peer_async(destination, destination_context, source, source_context, bytes,
                                    call.default_stream);
}

}  // namespace cistern::simulated
