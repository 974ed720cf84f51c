// Entries about device memory: allocations, copies, fills, and virtual memory.

#include <cstring>
#include <vector>

#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {
namespace {

void* pointer_to(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace

CUresult DriverState::mem_get_info(std::size_t* free_bytes, std::size_t* total_bytes) {
  if (free_bytes == nullptr || total_bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  const DeviceCapacity& capacity = device(index).capacity;
  *free_bytes = capacity.total() - capacity.used();
  *total_bytes = capacity.total();
  return CUDA_SUCCESS;
}

CUresult DriverState::mem_alloc(CUdeviceptr* pointer, std::size_t bytes) {
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
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

CUresult DriverState::memcpy_async(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes, CUstream handle) {
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  if (bytes == 0) return CUDA_SUCCESS;
  if (destination == 0 || source == 0) return CUDA_ERROR_INVALID_VALUE;
  const int index = stream->device;
  const auto is_valid = [this, destination, source, bytes, index] {
    return (!is_device_address(destination) || is_device_memory(destination, bytes, index, true)) &&
           (!is_device_address(source) || is_device_memory(source, bytes, index, false));
  };
  const std::vector<MemoryAccess> accesses{{source, bytes, false}, {destination, bytes, true}};
  if (!is_valid()) {
    tell_refused(*stream, {OperationKind::copy}, accesses);
    return CUDA_ERROR_INVALID_VALUE;
  }
  return queue_access(
      *stream, is_valid, Nanoseconds::zero(),
      [this, destination, source, bytes] {
        if (options.backing == Backing::memory) std::memmove(pointer_to(destination), pointer_to(source), bytes);
      },
      {OperationKind::copy}, accesses);
}

CUresult DriverState::memset_d8_async(CUdeviceptr destination, unsigned char value, std::size_t bytes,
                                      CUstream handle) {
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  if (bytes == 0) return CUDA_SUCCESS;
  const int index = stream->device;
  const auto is_valid = [this, destination, bytes, index] { return is_device_memory(destination, bytes, index, true); };
  const std::vector<MemoryAccess> accesses{{destination, bytes, true}};
  if (!is_valid()) {
    tell_refused(*stream, {OperationKind::fill}, accesses);
    return CUDA_ERROR_INVALID_VALUE;
  }
  return queue_access(
      *stream, is_valid, Nanoseconds::zero(),
      [this, destination, value, bytes] {
        if (options.backing == Backing::memory) std::memset(pointer_to(destination), value, bytes);
      },
      {OperationKind::fill}, accesses);
}

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
  return virtual_memory.unmap(pointer, bytes);
}

CUresult DriverState::mem_set_access(CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* access,
                                     std::size_t count) {
  const std::lock_guard lock(mutex);
  return virtual_memory.set_access(pointer, bytes, access, count);
}

}  // namespace cistern::simulated
