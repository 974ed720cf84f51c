#include "runtime/virtual_memory_support.h"

#include "runtime/driver_error.h"

#include <fmt/format.h>

namespace cistern {
namespace {

// An older driver refuses an attribute that it does not know.
bool has(const DriverApi& api, CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  const CUresult result = api.device_get_attribute(&value, attribute, device);
  if (result == CUDA_ERROR_INVALID_VALUE) return false;
  check_driver(api, result, DriverEntryId::device_get_attribute, [&] { return fmt::format("device {}", device); });
  return value != 0;
}

}  // namespace

bool supports_virtual_memory(const DriverApi& api, CUdevice device) {
  return api.mem_get_allocation_granularity && api.mem_address_reserve && api.mem_address_free && api.mem_create &&
         api.mem_release && api.mem_map && api.mem_unmap && api.mem_set_access &&
         has(api, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
}

bool supports_descriptor_handles(const DriverApi& api, CUdevice device) {
  return api.mem_export_to_shareable_handle && api.mem_import_from_shareable_handle &&
         has(api, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
}

bool supports_rdma_of_virtual_memory(const DriverApi& api, CUdevice device) {
  return has(api, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
}

}  // namespace cistern
