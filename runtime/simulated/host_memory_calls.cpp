// Entries about page-locked host memory. "CUDA Driver API", "Memory Management".

#include <sys/mman.h>
#include <unistd.h>

#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {
namespace {

constexpr unsigned kAllocFlags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
// What this device does not have, and says so in its attributes.
constexpr unsigned kRegisterFlagsAbsent = CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

// Whether the process has memory at all of the range: what has no pages cannot be locked.
bool is_mapped_by_host(std::uint64_t address, std::size_t bytes) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = round_down(address, page);
  return ::msync(reinterpret_cast<void*>(begin), address + bytes - begin, MS_ASYNC) == 0;
}

}  // namespace

CUresult DriverState::mem_host_alloc(void** pointer, std::size_t bytes, unsigned flags) {
  if (pointer == nullptr || bytes == 0 || (flags & ~kAllocFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  const auto address = host_memory.allocate(bytes, flags, index);
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  if (races) races->allocated(*address, bytes, "cuMemHostAlloc");
  *pointer = reinterpret_cast<void*>(*address);
  return CUDA_SUCCESS;
}

// Does not wait for copies that are still to come: no document says that it does. Such a copy
// fails its device when its turn comes.
CUresult DriverState::mem_free_host(void* pointer) {
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  if (!host_memory.is_allocation(address_of(pointer))) {
    if (races && pointer != nullptr) races->freed_nothing(address_of(pointer), "cuMemFreeHost");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (races) races->freed(address_of(pointer), "cuMemFreeHost");
  host_memory.release(address_of(pointer));
  return CUDA_SUCCESS;
}

CUresult DriverState::mem_host_register(void* pointer, std::size_t bytes, unsigned flags) {
  const std::uint64_t address = address_of(pointer);
  if (pointer == nullptr || bytes == 0 || (flags & ~kRegisterFlags) != 0 || address + bytes < address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & kRegisterFlagsAbsent) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  if (is_device_address(address)) return CUDA_ERROR_INVALID_VALUE;
  if (options.backing == Backing::memory && !is_mapped_by_host(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!host_memory.add_registered(address, bytes, flags, index)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  if (races) races->registered(address);
  return CUDA_SUCCESS;
}

CUresult DriverState::mem_host_unregister(void* pointer) {
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  const HostMemory::Range* range = host_memory.find(address_of(pointer));
  const std::size_t bytes = range == nullptr ? 0 : range->bytes;
  if (!host_memory.remove_registered(address_of(pointer))) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (races) races->unregistered(address_of(pointer), bytes);
  return CUDA_SUCCESS;
}

// With unified addressing all page-locked memory is mapped, whatever its flags, and a device
// sees it at the host's address.
CUresult DriverState::mem_host_get_device_pointer(CUdeviceptr* pointer, void* host, unsigned flags) {
  if (pointer == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  const HostMemory::Range* range = host_memory.find(address_of(host));
  if (range == nullptr || range->managed) return CUDA_ERROR_INVALID_VALUE;
  *pointer = address_of(host);
  return CUDA_SUCCESS;
}

// Of allocations only: a registered range is none.
CUresult DriverState::mem_host_get_flags(unsigned* flags, void* host) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  const HostMemory::Range* range = host_memory.find(address_of(host));
  if (range == nullptr || range->registered || range->managed) return CUDA_ERROR_INVALID_VALUE;
  *flags = range->flags;
  return CUDA_SUCCESS;
}

}  // namespace cistern::simulated
