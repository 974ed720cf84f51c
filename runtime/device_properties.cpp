// What a device is and can, as the driver's attributes say.

#include <cistern/device.h>
#include <cistern/error.h>
#include <fmt/format.h>

#include <map>
#include <mutex>

#include "runtime/device_uuid.h"
#include "runtime/driver_error.h"
#include "runtime/process_driver.h"
#include "runtime/virtual_memory_support.h"

namespace cistern {
namespace {

// One device of the process's driver, for questions that need no context.
class DeviceQuestions {
 public:
  explicit DeviceQuestions(Device device)
      : index_(resolve_device(device)), api_(process_driver()), device_(process_contexts().driver_device(index_)) {}

  [[nodiscard]] int index() const noexcept { return index_; }
  [[nodiscard]] const DriverApi& api() const noexcept { return api_; }
  [[nodiscard]] CUdevice device() const noexcept { return device_; }

  void check(CUresult result, DriverEntryId entry) const {
    check_driver(api_, result, entry, [this] { return fmt::format("device {}", index_); });
  }
  [[nodiscard]] int attribute(CUdevice_attribute which) const {
    int value = 0;
    check_driver(api_, api_.device_get_attribute(&value, which, device_), DriverEntryId::device_get_attribute,
                 [&] { return fmt::format("attribute {} of device {}", static_cast<int>(which), index_); });
    return value;
  }
  // False also where the driver is older than the attribute: it has no such feature.
  [[nodiscard]] bool has(CUdevice_attribute which) const {
    int value = 0;
    const CUresult result = api_.device_get_attribute(&value, which, device_);
    if (result == CUDA_ERROR_INVALID_VALUE) return false;
    check(result, DriverEntryId::device_get_attribute);
    return value != 0;
  }
  [[nodiscard]] std::string name() const {
    char name[256] = "";
    check(api_.device_get_name(name, sizeof name, device_), DriverEntryId::device_get_name);
    return name;
  }
  [[nodiscard]] ComputeCapability capability() const {
    return {attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)};
  }

 private:
  int index_;
  const DriverApi& api_;
  CUdevice device_;
};

bool has_stream_ordered_pools(const DeviceQuestions& ask) {
  const DriverApi& api = ask.api();
  return api.mem_alloc_async && api.mem_free_async && api.mem_alloc_from_pool_async && api.mem_pool_create &&
         api.mem_pool_destroy && api.mem_pool_trim_to && api.mem_pool_set_attribute && api.mem_pool_get_attribute &&
         api.mem_pool_set_access && api.device_get_default_mem_pool &&
         ask.has(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
}

DeviceCapabilities probe(const DeviceQuestions& ask) {
  const DriverApi& api = ask.api();
  DeviceCapabilities can;
  ask.check(api.driver_get_version(&can.driver_version), DriverEntryId::driver_get_version);
  can.virtual_memory = supports_virtual_memory(api, ask.device());
  can.file_descriptor_handles = can.virtual_memory && supports_descriptor_handles(api, ask.device());
  can.stream_ordered_pools = has_stream_ordered_pools(ask);
  can.unified_addressing = ask.has(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
  // Legacy handles of memory need unified addressing and no more (CUDA Driver API, cuIpcGetMemHandle).
  can.ipc_memory =
      can.unified_addressing && api.ipc_get_mem_handle && api.ipc_open_mem_handle && api.ipc_close_mem_handle;
  can.ipc_events =
      api.ipc_get_event_handle && api.ipc_open_event_handle && ask.has(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
  can.graphs = api.stream_begin_capture && api.graph_instantiate && api.graph_launch;
  can.host_registration = api.mem_host_register && ask.has(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
  can.mapped_host_memory = api.mem_host_get_device_pointer && ask.has(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  return can;
}

}  // namespace

std::string ComputeCapability::to_string() const { return fmt::format("{}.{}", major, minor); }

std::string DeviceProperties::uuid_text() const { return cistern::uuid_text(uuid); }

DeviceProperties device_properties(Device device) {
  const DeviceQuestions ask(device);
  DeviceProperties properties;
  properties.name = ask.name();
  properties.uuid = uuid_of_device(ask.index());
  ask.check(ask.api().device_total_mem(&properties.total_memory, ask.device()), DriverEntryId::device_total_mem);
  const ComputeCapability capability = ask.capability();
  properties.compute_capability_major = capability.major;
  properties.compute_capability_minor = capability.minor;
  properties.multiprocessor_count = ask.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  properties.warp_size = ask.attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  properties.l2_cache_size = static_cast<std::size_t>(ask.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  properties.pci_domain_id = ask.attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  properties.pci_bus_id = ask.attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  properties.pci_device_id = ask.attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  properties.virtual_memory_management = supports_virtual_memory(ask.api(), ask.device());
  return properties;
}

std::string device_name(Device device) { return DeviceQuestions(device).name(); }

ComputeCapability device_capability(Device device) { return DeviceQuestions(device).capability(); }

DeviceCapabilities device_capabilities(Device device) {
  static std::mutex& mutex = *new std::mutex;
  static auto& known = *new std::map<int, DeviceCapabilities>;
  const DeviceQuestions ask(device);
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(ask.index()); found != known.end()) return found->second;
  }
  // Unlocked, since it asks the driver: two threads that come first both ask, and learn the same.
  const DeviceCapabilities can = probe(ask);
  const std::lock_guard lock(mutex);
  known.emplace(ask.index(), can);
  return can;
}

}  // namespace cistern
