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

CUresult DriverState::mem_free(CUdeviceptr pointer) {
  Lock lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
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
