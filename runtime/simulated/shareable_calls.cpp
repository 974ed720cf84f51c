// Entries that share physical memory as file descriptors. "CUDA Driver API", "Virtual Memory
// Management": cuMemExportToShareableHandle, cuMemImportFromShareableHandle.

#include "runtime/simulated/driver_state.h"
#include "runtime/simulated/shareable_memory.h"

#include <algorithm>
#include <utility>

namespace cistern::simulated {

CUresult DriverState::mem_export_to_shareable_handle(void* shareable, CUmemGenericAllocationHandle handle,
                                                     CUmemAllocationHandleType type, unsigned long long flags) {
  if (shareable == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || options.backing == Backing::none) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const std::lock_guard lock(mutex);
  const auto extent = virtual_memory.extent_of(handle);
  CUmemAllocationProp properties{};
  if (!extent || virtual_memory.properties(&properties, handle) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  // "requestedHandleTypes" of cuMemCreate must have named the type.
  if ((properties.requestedHandleTypes & type) == 0) return CUDA_ERROR_INVALID_VALUE;
  const OwnedFile* lease = virtual_memory.lease_of(handle);
  if (lease == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const int descriptor = make_descriptor(extent->place, extent->bytes, device(extent->device).physical, *lease);
  if (descriptor < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *static_cast<int*>(shareable) = descriptor;
  return CUDA_SUCCESS;
}

CUresult DriverState::mem_import_from_shareable_handle(CUmemGenericAllocationHandle* handle, void* shareable,
                                                       CUmemAllocationHandleType type) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || options.backing == Backing::none) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  auto memory = open_descriptor(static_cast<int>(reinterpret_cast<std::intptr_t>(shareable)));
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  const auto found = std::find_if(devices.begin(), devices.end(), [&](const SimulatedDevice& each) {
    return static_cast<std::uint64_t>(each.physical) == memory->device;
  });
  if (found == devices.end()) return CUDA_ERROR_INVALID_DEVICE;
  const auto index = static_cast<int>(found - devices.begin());
  *handle = virtual_memory.adopt(index, static_cast<std::size_t>(memory->bytes), std::move(memory->file),
                                 memory->offset, std::move(memory->lease));
  return CUDA_SUCCESS;
}

}  // namespace cistern::simulated
