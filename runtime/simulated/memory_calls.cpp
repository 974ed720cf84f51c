// Entries about device allocations.

#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {

CUresult DriverState::mem_get_info(std::size_t* free_bytes, std::size_t* total_bytes) {
  if (free_bytes == nullptr || total_bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  virtual_memory.collect_leased();
  const DeviceCapacity& capacity = device(index).capacity;
  *free_bytes = capacity.free();
  *total_bytes = capacity.total();
  return CUDA_SUCCESS;
}

CUresult DriverState::mem_alloc(CUdeviceptr* pointer, std::size_t bytes) {
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  virtual_memory.collect_leased();
  const auto address = device(index).memory.allocate(bytes);
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = *address;
  if (races) races->allocated(*address, bytes, "cuMemAlloc");
  return CUDA_SUCCESS;
}

// Not charged to the device: it may be larger than its memory. "CUDA Driver API", "Memory Management",
// cuMemAllocManaged.
CUresult DriverState::mem_alloc_managed(CUdeviceptr* pointer, std::size_t bytes, unsigned flags) {
  const bool is_attached = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
  if (pointer == nullptr || bytes == 0 || !is_attached) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  const auto address = host_memory.allocate_managed(bytes, index);
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  if (races) races->allocated(*address, bytes, "cuMemAllocManaged");
  *pointer = *address;
  return CUDA_SUCCESS;
}

// The free waits for the work of all devices, which all reach it.
CUresult DriverState::free_managed(Lock& lock, CUdeviceptr pointer) {
  for (int index = 0; index < device_count(); ++index) {
    if (races) races->host_waited_for_device(index);
    if (const CUresult failed = wait_for_device(lock, index); failed != CUDA_SUCCESS) return failed;
  }
  if (!host_memory.is_managed(pointer)) return CUDA_ERROR_INVALID_VALUE;  // freed meanwhile
  if (races) races->freed(pointer, "cuMemFree");
  host_memory.release(pointer);
  return CUDA_SUCCESS;
}

CUresult DriverState::mem_free(CUdeviceptr pointer) {
  Lock lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  if (host_memory.is_managed(pointer)) return free_managed(lock, pointer);
  if (pools.find_allocation(pointer) != nullptr) return free_pool_allocation(lock, pointer);
  if (const GraphAllocationPtr allocation = graph_memory.find(pointer)) return free_graph_allocation(lock, allocation);
  // The memory tells its device; the current context only has to exist.
  for (index = 0; index < device_count() && !device(index).memory.is_allocation(pointer);) ++index;
  if (index == device_count()) {
    if (races && pointer != 0) races->freed_nothing(pointer, "cuMemFree");
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The free waits for the device's work: CUDA C++ Programming Guide, "Implicit Synchronization".
  if (races) races->host_waited_for_device(index);
  if (const CUresult failed = wait_for_device(lock, index); failed != CUDA_SUCCESS) return failed;
  // While this thread waited, another may have freed it.
  if (!device(index).memory.is_allocation(pointer)) return CUDA_ERROR_INVALID_VALUE;
  if (races) races->freed(pointer, "cuMemFree");
  ipc.withdraw(pointer);
  device(index).memory.release(pointer);
  return CUDA_SUCCESS;
}

}  // namespace cistern::simulated
