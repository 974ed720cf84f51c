// Entries about stream-ordered allocations and their pools. "CUDA Driver API", "Stream Ordered
// Memory Allocator"; "CUDA C++ Programming Guide", the chapter of that name, for what is
// reused and when memory goes back.

#include <algorithm>
#include <utility>

#include "runtime/simulated/driver_state.h"
#include "runtime/simulated/thread_numbers.h"

namespace cistern::simulated {
namespace {

template <class Value>
Value read(const void* value) {
  return *static_cast<const Value*>(value);
}
template <class Value>
CUresult write(void* value, Value what) {
  *static_cast<Value*>(value) = what;
  return CUDA_SUCCESS;
}

}  // namespace

// --- Allocations ------------------------------------------------------------------------

CUresult DriverState::allocate_in_stream(CUdeviceptr* pointer, std::size_t bytes, CUmemoryPool pool,
                                         StreamQueue& stream) {
  if (stream.capture != nullptr) return capture_allocation(pointer, bytes, *pools.find(pool), stream);
  if (captures.is_any())
    if (const CUresult refused = captures.check_unsafe_call(this_thread_number()); refused != CUDA_SUCCESS)
      return refused;
  virtual_memory.collect_leased();
  PoolMemory::Request request{.bytes = bytes, .stream = stream.id};
  request.preceding = [&] { return executor.preceding(stream); };
  const auto taken = pools.allocate(pool, std::move(request));
  if (!taken) return CUDA_ERROR_OUT_OF_MEMORY;
  const PoolAllocation allocation = *pools.find_allocation(taken->address);
  Work work{.label = {OperationKind::allocation, {}}};
  if (races) work.accesses = {{allocation.address, allocation.bytes, true}};
  work.function = [this, allocation](CUresult) {
    const std::lock_guard lock(mutex);
    pools.allocation_ran(allocation);
    return CUDA_SUCCESS;
  };
  work.runs_after_failure = true;  // the accounts go on
  Target queued{};
  if (const CUresult refused = submit(stream, std::move(work), taken->behind, &queued); refused != CUDA_SUCCESS) {
    pools.free_now(pools.withdraw(taken->address));
    return refused;
  }
  pools.set_operation(taken->address, queued);
  *pointer = taken->address;
  return CUDA_SUCCESS;
}

CUresult DriverState::mem_alloc_async(CUdeviceptr* pointer, std::size_t bytes, CUstream handle) {
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  return allocate_in_stream(pointer, bytes, pools.current_of(stream->device), *stream);
}

CUresult DriverState::mem_alloc_from_pool_async(CUdeviceptr* pointer, std::size_t bytes, CUmemoryPool pool,
                                                CUstream handle) {
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  if (pools.find(pool) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return allocate_in_stream(pointer, bytes, pool, *stream);
}

void DriverState::free_in_stream(const PoolAllocation& allocation, StreamQueue& stream) {
  // The number is known once the operation is queued, and read when its turn comes.
  const auto operation = std::make_shared<std::uint64_t>(0);
  Work work{.label = {OperationKind::release, {}}};
  if (races) work.accesses = {{allocation.address, allocation.bytes, true}};
  work.function = [this, allocation, operation](CUresult) {
    const std::lock_guard lock(mutex);
    pools.free_ran(allocation, *operation);
    return CUDA_SUCCESS;
  };
  work.runs_after_failure = true;
  Target queued{};
  static_cast<void>(submit(stream, std::move(work), {}, &queued));  // it does not capture
  *operation = pools.queue_free(allocation, stream.id, queued);
}

void DriverState::free_in_stream(CUdeviceptr pointer, int owner, StreamQueue& stream) {
  Work work{.label = {OperationKind::release, {}}};
  if (races) work.accesses = {{pointer, device(owner).memory.find(pointer)->bytes, true}};
  device(owner).memory.withdraw(pointer);
  ipc.withdraw(pointer);
  work.function = [this, pointer, owner](CUresult) {
    const std::lock_guard lock(mutex);
    device(owner).memory.release(pointer);
    return CUDA_SUCCESS;
  };
  work.runs_after_failure = true;
  static_cast<void>(submit(stream, std::move(work)));  // it does not capture
}

// Takes what cuMemAlloc made too: "CUDA C++ Programming Guide", "Stream Ordered Memory Allocator".
CUresult DriverState::mem_free_async(CUdeviceptr pointer, CUstream handle) {
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  if (const CUresult refused = captures.check_use(*stream); refused != CUDA_SUCCESS) return refused;
  if (stream->capture != nullptr) return capture_free(pointer, *stream);
  if (const GraphAllocationPtr allocation = graph_memory.find(pointer)) {
    if (const CUresult refused = check_graph_free(*allocation, "cuMemFreeAsync"); refused != CUDA_SUCCESS)
      return refused;
    free_in_stream(allocation, *stream);
    return CUDA_SUCCESS;
  }
  if (pools.find_allocation(pointer) != nullptr) {
    free_in_stream(pools.withdraw(pointer), *stream);
    return CUDA_SUCCESS;
  }
  const int owner = device_window_at(pointer);
  if (owner < 0 || !device(owner).memory.is_allocation(pointer)) {
    if (races && pointer != 0) races->freed_nothing(pointer, "cuMemFreeAsync");
    return CUDA_ERROR_INVALID_VALUE;
  }
  free_in_stream(pointer, owner, *stream);
  return CUDA_SUCCESS;
}

// cuMemFree of such an allocation takes all work on it to be over, and waits for none but the
// allocation itself.
CUresult DriverState::free_pool_allocation(Lock& lock, CUdeviceptr pointer) {
  const PoolAllocation* allocation = pools.find_allocation(pointer);
  const std::uint64_t id = allocation->id;
  executor.finish(lock, {allocation->allocated});
  allocation = pools.find_allocation(pointer);
  // While this thread waited, another may have freed it.
  if (allocation == nullptr || allocation->id != id) return CUDA_ERROR_INVALID_VALUE;
  if (races) races->freed(pointer, "cuMemFree");
  pools.free_now(pools.withdraw(pointer));
  return CUDA_SUCCESS;
}

// --- Pools ------------------------------------------------------------------------------

CUresult DriverState::mem_pool_create(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  if (pool == nullptr || properties == nullptr || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !is_device(properties->location.id)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Pools are not shared between processes here.
  if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  const std::lock_guard lock(mutex);
  *pool = pools.create(properties->location.id, properties->maxSize, properties->handleTypes);
  return CUDA_SUCCESS;
}

CUresult DriverState::mem_pool_destroy(CUmemoryPool pool) {
  const std::lock_guard lock(mutex);
  const MemoryPool* found = pools.find(pool);
  if (found == nullptr || pools.default_of(found->device) == pool) return CUDA_ERROR_INVALID_VALUE;
  pools.destroy(pool);
  return CUDA_SUCCESS;
}

CUresult DriverState::mem_pool_trim_to(CUmemoryPool pool, std::size_t keep_bytes) {
  const std::lock_guard lock(mutex);
  MemoryPool* found = pools.find(pool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  found->memory->trim_to(keep_bytes);
  return CUDA_SUCCESS;
}

CUresult DriverState::mem_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  MemoryPool* found = pools.find(pool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      found->rules.follow_event_dependencies = read<int>(value) != 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      found->rules.allow_opportunistic = read<int>(value) != 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      found->rules.allow_internal_dependencies = read<int>(value) != 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      found->release_threshold = read<cuuint64_t>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (read<cuuint64_t>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      found->memory->reset_most_reserved();
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (read<cuuint64_t>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      found->most_used = found->used;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult DriverState::mem_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  const MemoryPool* found = pools.find(pool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      return write<int>(value, found->rules.follow_event_dependencies ? 1 : 0);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      return write<int>(value, found->rules.allow_opportunistic ? 1 : 0);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return write<int>(value, found->rules.allow_internal_dependencies ? 1 : 0);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return write<cuuint64_t>(value, found->release_threshold);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return write<cuuint64_t>(value, found->memory->reserved());
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return write<cuuint64_t>(value, found->memory->most_reserved());
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return write<cuuint64_t>(value, found->used);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return write<cuuint64_t>(value, found->most_used);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// A pool's own device keeps its access; another needs to be a peer of it.
CUresult DriverState::mem_pool_set_access(CUmemoryPool pool, const CUmemAccessDesc* access, std::size_t count) {
  const std::lock_guard lock(mutex);
  MemoryPool* found = pools.find(pool);
  if (found == nullptr || access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (const CUmemAccessDesc* each = access; each != access + count; ++each) {
    const bool flags_known = each->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                             each->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                             each->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const int index = each->location.id;
    if (each->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !is_device(index) || !flags_known) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (index == found->device && each->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
    if (index != found->device && !peers.can_access(index, found->device)) return CUDA_ERROR_INVALID_DEVICE;
  }
  for (const CUmemAccessDesc* each = access; each != access + count; ++each) {
    const std::uint64_t bit = std::uint64_t{1} << each->location.id;
    const bool reads = each->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    const bool writes = each->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    found->readers = reads ? found->readers | bit : found->readers & ~bit;
    found->writers = writes ? found->writers | bit : found->writers & ~bit;
  }
  return CUDA_SUCCESS;
}

CUresult DriverState::mem_pool_get_access(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
  const std::lock_guard lock(mutex);
  const MemoryPool* found = pools.find(pool);
  if (flags == nullptr || found == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
      !is_device(location->id)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto has = [&](std::uint64_t set) { return (set >> location->id & 1) != 0; };
  *flags = has(found->writers)   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : has(found->readers) ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult DriverState::device_get_default_mem_pool(CUmemoryPool* pool, CUdevice index) {
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(index)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(mutex);
  *pool = pools.default_of(index);
  return CUDA_SUCCESS;
}

CUresult DriverState::device_get_mem_pool(CUmemoryPool* pool, CUdevice index) {
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(index)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(mutex);
  *pool = pools.current_of(index);
  return CUDA_SUCCESS;
}

CUresult DriverState::device_set_mem_pool(CUdevice index, CUmemoryPool pool) {
  if (!is_device(index)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(mutex);
  const MemoryPool* found = pools.find(pool);
  if (found == nullptr || found->device != index) return CUDA_ERROR_INVALID_VALUE;
  pools.set_current(index, pool);
  return CUDA_SUCCESS;
}

}  // namespace cistern::simulated
