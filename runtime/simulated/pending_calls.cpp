// Entries of the table that the simulated driver does not serve yet.

#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {

CUresult DriverState::mem_export_to_shareable_handle(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                                     unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult DriverState::mem_import_from_shareable_handle(CUmemGenericAllocationHandle*, void*,
                                                       CUmemAllocationHandleType) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace cistern::simulated
