// Whose memory an address is, as the driver knows it.

#include <cistern/device.h>
#include <cistern/error.h>
#include <cistern/host_memory.h>
#include <fmt/format.h>

#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/process_driver.h"

namespace cistern {
namespace {

// As cuPointerGetAttribute; false for an address that the driver does not know.
bool ask_pointer(const DriverApi& api, CUpointer_attribute attribute, const void* pointer, void* value) {
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  CUresult result = api.pointer_get_attribute(value, attribute, address);
  if (result == CUDA_ERROR_INVALID_CONTEXT) {
    const DeviceScope scope(nullptr, current_device().index());
    result = api.pointer_get_attribute(value, attribute, address);
  }
  if (result == CUDA_ERROR_INVALID_VALUE) return false;
  check_driver(api, result, DriverEntryId::pointer_get_attribute, [&] { return fmt::format("address {}", pointer); });
  return true;
}

// The memory type of an address; 0 for one that the driver does not know, and without a device.
unsigned memory_type(const void* pointer) {
  if (pointer == nullptr) return 0;
  try {
    unsigned type = 0;
    return ask_pointer(process_driver(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer, &type) ? type : 0;
  } catch (const NotSupported&) {
    return 0;  // no driver, or not in this process
  }
}

}  // namespace

std::optional<Device> device_of(const void* pointer) {
  if (memory_type(pointer) != CU_MEMORYTYPE_DEVICE) return std::nullopt;
  int ordinal = -1;
  if (!ask_pointer(process_driver(), CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer, &ordinal)) return std::nullopt;
  const Contexts& contexts = process_contexts();
  for (int index = 0; index < contexts.device_count(); ++index)
    if (contexts.driver_device(index) == ordinal) return Device(index);
  return std::nullopt;
}

bool is_pinned(const void* pointer) { return memory_type(pointer) == CU_MEMORYTYPE_HOST; }

}  // namespace cistern
