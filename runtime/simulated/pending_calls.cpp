// Entries of the table that the simulated driver does not serve yet.

#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {

CUresult DriverState::ctx_enable_peer_access(CUcontext, unsigned) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult DriverState::ctx_disable_peer_access(CUcontext) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult DriverState::memcpy(CUdeviceptr, CUdeviceptr, std::size_t) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult DriverState::memcpy_peer_async(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, std::size_t, CUstream) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult DriverState::memset_d16_async(CUdeviceptr, unsigned short, std::size_t, CUstream) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult DriverState::memset_d32_async(CUdeviceptr, unsigned, std::size_t, CUstream) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult DriverState::pointer_get_attribute(void*, CUpointer_attribute, CUdeviceptr) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult DriverState::mem_get_address_range(CUdeviceptr*, std::size_t*, CUdeviceptr) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult DriverState::mem_host_alloc(void**, std::size_t, unsigned) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult DriverState::mem_free_host(void*) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult DriverState::mem_host_register(void*, std::size_t, unsigned) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult DriverState::mem_host_unregister(void*) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult DriverState::mem_host_get_device_pointer(CUdeviceptr*, void*, unsigned) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult DriverState::mem_host_get_flags(unsigned*, void*) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult DriverState::mem_get_access(unsigned long long*, const CUmemLocation*, CUdeviceptr) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult DriverState::mem_get_allocation_properties(CUmemAllocationProp*, CUmemGenericAllocationHandle) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult DriverState::mem_retain_allocation_handle(CUmemGenericAllocationHandle*, void*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult DriverState::mem_export_to_shareable_handle(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                                     unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult DriverState::mem_import_from_shareable_handle(CUmemGenericAllocationHandle*, void*,
                                                       CUmemAllocationHandleType) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult DriverState::mem_alloc_async(CUdeviceptr*, std::size_t, CUstream) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult DriverState::mem_free_async(CUdeviceptr, CUstream) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult DriverState::mem_alloc_from_pool_async(CUdeviceptr*, std::size_t, CUmemoryPool, CUstream) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult DriverState::mem_pool_create(CUmemoryPool*, const CUmemPoolProps*) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult DriverState::mem_pool_destroy(CUmemoryPool) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult DriverState::mem_pool_trim_to(CUmemoryPool, std::size_t) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult DriverState::mem_pool_set_attribute(CUmemoryPool, CUmemPool_attribute, void*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult DriverState::mem_pool_get_attribute(CUmemoryPool, CUmemPool_attribute, void*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult DriverState::mem_pool_set_access(CUmemoryPool, const CUmemAccessDesc*, std::size_t) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult DriverState::mem_pool_get_access(CUmemAccess_flags*, CUmemoryPool, CUmemLocation*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult DriverState::device_get_default_mem_pool(CUmemoryPool*, CUdevice) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult DriverState::device_get_mem_pool(CUmemoryPool*, CUdevice) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult DriverState::device_set_mem_pool(CUdevice, CUmemoryPool) { return CUDA_ERROR_NOT_SUPPORTED; }

}  // namespace cistern::simulated
