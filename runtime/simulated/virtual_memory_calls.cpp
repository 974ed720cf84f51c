// Entries about virtual memory. "CUDA Driver API", "Virtual Memory Management".

#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {

// Virtual memory needs no current context: reservations belong to the process, and
// properties and access descriptors name their devices.

CUresult DriverState::mem_get_allocation_granularity(std::size_t* bytes, const CUmemAllocationProp* properties,
                                                     CUmemAllocationGranularity_flags option) {
  if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::lock_guard lock(mutex);
  return virtual_memory.granularity(bytes, properties);
}

CUresult DriverState::mem_address_reserve(CUdeviceptr* pointer, std::size_t bytes, std::size_t alignment,
                                          CUdeviceptr address, unsigned long long flags) {
  const std::lock_guard lock(mutex);
  return virtual_memory.reserve(pointer, bytes, alignment, address, flags);
}

CUresult DriverState::mem_address_free(CUdeviceptr pointer, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  return virtual_memory.free_reservation(pointer, bytes);
}

CUresult DriverState::mem_create(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                                 const CUmemAllocationProp* properties, unsigned long long flags) {
  const std::lock_guard lock(mutex);
  return virtual_memory.create(handle, bytes, properties, flags);
}

CUresult DriverState::mem_release(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex);
  return virtual_memory.release(handle);
}

CUresult DriverState::mem_map(CUdeviceptr pointer, std::size_t bytes, std::size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const std::lock_guard lock(mutex);
  const CUresult result = virtual_memory.map(pointer, bytes, offset, handle, flags);
  if (races && result == CUDA_SUCCESS) races->mapped(pointer, bytes);
  return result;
}

CUresult DriverState::mem_unmap(CUdeviceptr pointer, std::size_t bytes) {
  Lock lock(mutex);
  if (const CUresult invalid = virtual_memory.check_unmap(pointer, bytes); invalid != CUDA_SUCCESS) return invalid;
  // Nothing says that an unmap waits for the work on the memory, so it orders nothing.
  if (races) races->unmapped(pointer, bytes);
  const std::uint64_t mapped = virtual_memory.devices_mapped(pointer, bytes);
  if (const CUresult failed = wait_for_devices(lock, mapped); failed != CUDA_SUCCESS) return failed;
  // Another device's work, which nothing waited for, must not lose what it touches right now.
  hold_released.wait(lock, [&] { return !virtual_memory.is_held(pointer, bytes); });
  return virtual_memory.unmap(pointer, bytes);
}

CUresult DriverState::mem_set_access(CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* access,
                                     std::size_t count) {
  const std::lock_guard lock(mutex);
  return virtual_memory.set_access(pointer, bytes, access, count);
}

CUresult DriverState::mem_get_access(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer) {
  const std::lock_guard lock(mutex);
  return virtual_memory.get_access(flags, location, pointer);
}

CUresult DriverState::mem_get_allocation_properties(CUmemAllocationProp* properties,
                                                    CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex);
  return virtual_memory.properties(properties, handle);
}

CUresult DriverState::mem_retain_allocation_handle(CUmemGenericAllocationHandle* handle, void* address) {
  const std::lock_guard lock(mutex);
  return virtual_memory.retain(handle, reinterpret_cast<CUdeviceptr>(address));
}

}  // namespace cistern::simulated
