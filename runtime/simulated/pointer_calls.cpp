// Entries that tell what memory an address lies in. "CUDA Driver API", "Unified Addressing".

#include <optional>

#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {
namespace {

// Each origin, and each device, numbers its memory from 1.
std::uint64_t unique_id(MemoryOrigin origin, int device, std::uint64_t id) {
  return (static_cast<std::uint64_t>(origin) << 60) | (static_cast<std::uint64_t>(device) << 52) | id;
}

template <class Value>
CUresult tell(void* value, Value what) {
  *static_cast<Value*>(value) = what;
  return CUDA_SUCCESS;
}
CUresult tell_whether(void* value, bool what) { return tell<int>(value, what ? 1 : 0); }

MemoryDescription describe_host(const HostMemory::Range& range) {
  MemoryDescription found;
  found.origin = range.registered ? MemoryOrigin::host_registration : MemoryOrigin::host_allocation;
  if (range.managed) found.origin = MemoryOrigin::managed;
  found.device = range.device;
  found.range = found.mapping = range.begin;
  found.range_bytes = found.mapping_bytes = range.bytes;
  found.id = unique_id(MemoryOrigin::host_allocation, 0, range.id);  // both are numbered together
  return found;
}

MemoryDescription describe_virtual(const VirtualMemory::Place& place) {
  MemoryDescription found;
  found.origin = MemoryOrigin::virtual_memory;
  found.device = place.device;
  found.range = place.reservation;
  found.range_bytes = place.reservation_bytes;
  found.is_mapped = place.mapping != 0;
  found.mapping = place.mapping;
  found.mapping_bytes = place.mapping_bytes;
  found.handle_types = place.handle_types;
  found.id = unique_id(found.origin, 0, place.id);
  return found;
}

// It belongs to no pool: "CUDA Driver API", cuMemAllocFromPoolAsync, the note on capture.
MemoryDescription describe_graphs(const GraphAllocation& allocation) {
  MemoryDescription found;
  found.origin = MemoryOrigin::graph;
  found.device = allocation.arena->device();
  found.range = found.mapping = allocation.address;
  found.range_bytes = found.mapping_bytes = allocation.bytes;
  found.id = unique_id(found.origin, 0, allocation.id);
  return found;
}

}  // namespace

std::optional<MemoryDescription> DriverState::describe(std::uint64_t address) const {
  if (const auto place = virtual_memory.place_at(address)) return describe_virtual(*place);
  if (const HostMemory::Range* range = host_memory.find(address)) return describe_host(*range);
  const int owner = device_window_at(address);
  if (owner < 0) return std::nullopt;
  if (const PoolAllocation* allocation = pools.find_around(address)) {
    MemoryDescription found;
    found.origin = MemoryOrigin::pool;
    found.device = owner;
    found.range = found.mapping = allocation->address;
    found.range_bytes = found.mapping_bytes = allocation->bytes;
    found.pool = allocation->pool;
    found.id = unique_id(found.origin, 0, allocation->id);
    return found;
  }
  if (const GraphAllocationPtr allocation = graph_memory.find_around(address)) return describe_graphs(*allocation);
  const DeviceMemory& memory = devices[static_cast<std::size_t>(owner)].memory;
  const auto allocation = memory.find(address);
  if (!allocation || !memory.holds(address, 1)) return std::nullopt;
  MemoryDescription found;
  found.device = owner;
  found.range = found.mapping = allocation->begin;
  found.range_bytes = found.mapping_bytes = allocation->bytes;
  found.id = unique_id(found.origin, owner, allocation->id);
  return found;
}

// What the documentation calls a boolean is written as an int, as the programs that ask have it.
CUresult DriverState::pointer_get_attribute(void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  const auto found = describe(pointer);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return tell(value, static_cast<CUdeviceptr>(found->range));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return tell(value, found->range_bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return tell_whether(value, found->is_mapped);
    default:
      return found->is_mapped ? tell_of_memory(value, attribute, pointer, *found) : CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult DriverState::tell_of_memory(void* value, CUpointer_attribute attribute, CUdeviceptr pointer,
                                     const MemoryDescription& memory) const {
  const bool of_context =
      memory.origin == MemoryOrigin::device_allocation || memory.origin == MemoryOrigin::managed || memory.is_host();
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // Memory of pools, graphs and handles is the device's, not a context's.
      return tell<CUcontext>(value, of_context ? context_of(memory.device) : nullptr);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return tell<unsigned>(value, memory.is_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      if (current.get() < 0) return CUDA_ERROR_INVALID_CONTEXT;
      if (!may_touch({pointer, 1, false, current.get()}, Moment::call)) return CUDA_ERROR_INVALID_VALUE;
      return tell<CUdeviceptr>(value, pointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!memory.is_host() && memory.origin != MemoryOrigin::managed) return CUDA_ERROR_INVALID_VALUE;
      return tell(value, reinterpret_cast<void*>(pointer));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return tell<unsigned long long>(value, memory.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return tell_whether(value, memory.origin == MemoryOrigin::managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return tell<int>(value, memory.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return tell_whether(value, memory.origin == MemoryOrigin::device_allocation);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return tell(value, memory.handle_types);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      if (current.get() < 0) return CUDA_ERROR_INVALID_CONTEXT;
      return tell(value, access_flags(pointer));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return tell(value, memory.pool);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return tell(value, memory.mapping_bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return tell(value, static_cast<CUdeviceptr>(memory.mapping));
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return tell<unsigned long long>(value, memory.id);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return tell_whether(value, false);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:   // of a kernel driver that is not there
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:  // nothing sets it
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS DriverState::access_flags(CUdeviceptr pointer) const {
  if (may_touch({pointer, 1, true, current.get()}, Moment::call)) return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
  if (may_touch({pointer, 1, false, current.get()}, Moment::call)) return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ;
  return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
}

// Of device memory. What reserved addresses have mapped is told apart handle by handle.
CUresult DriverState::mem_get_address_range(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr pointer) {
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  const auto found = describe(pointer);
  if (!found || !found->is_mapped || found->is_host()) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = found->mapping;
  if (bytes != nullptr) *bytes = found->mapping_bytes;
  return CUDA_SUCCESS;
}

}  // namespace cistern::simulated
