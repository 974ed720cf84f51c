#include <cistern/device.h>
#include <cistern/error.h>
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <optional>

#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/process_driver.h"

namespace cistern {
namespace {

thread_local int current_index = 0;

std::string describe(int device) { return fmt::format("device {}", device); }

// Digits only, and all of them.
std::optional<int> parse_index(std::string_view digits) {
  if (digits.empty() || digits.front() < '0' || digits.front() > '9') return std::nullopt;
  int index = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, index);
  if (error != std::errc() || stop != end) return std::nullopt;
  return index;
}

int parse_device(std::string_view text) {
  for (const std::string_view kind : {"cuda", "simulated"}) {
    if (text == kind) return -1;
    if (!text.starts_with(kind) || text[kind.size()] != ':') continue;
    if (const auto index = parse_index(text.substr(kind.size() + 1))) return *index;
  }
  throw InvalidArgument(
      fmt::format("device \"{}\": expected \"cuda\", \"cuda:N\", \"simulated\" or \"simulated:N\"", text));
}

int attribute(const DriverApi& api, CUdevice driver_device, int device, CUdevice_attribute which) {
  int value = 0;
  check_driver(api, api.device_get_attribute(&value, which, driver_device), DriverEntryId::device_get_attribute,
               [&] { return fmt::format("attribute {} of device {}", static_cast<int>(which), device); });
  return value;
}

bool has_virtual_memory_entries(const DriverApi& api) {
  return api.mem_get_allocation_granularity && api.mem_address_reserve && api.mem_address_free && api.mem_create &&
         api.mem_release && api.mem_map && api.mem_unmap && api.mem_set_access;
}

}  // namespace

Device::Device(int index) : index_(index) {
  if (index < -1)
    throw InvalidArgument(fmt::format("device {}: expected an index from 0, or -1 for the current device", index));
}

Device::Device(std::string_view text) : index_(parse_device(text)) {}

std::string Device::to_string() const { return is_current() ? "cuda" : fmt::format("cuda:{}", index_); }

int device_count() { return process_device_count(); }

bool is_available() noexcept try { return process_device_count() > 0; } catch (...) {
  return false;
}

void initialize() { static_cast<void>(process_contexts().primary(current_index)); }

bool is_initialized() noexcept { return process_driver_loaded(); }

Device current_device() { return Device(current_index); }

void set_device(Device device) {
  if (!device.is_current()) current_index = resolve_device(device);
}

void synchronize(Device device) {
  const int index = resolve_device(device);
  const DeviceScope scope(nullptr, index);
  check_driver(scope.api(), scope.api().ctx_synchronize(), DriverEntryId::ctx_synchronize,
               [index] { return describe(index); });
}

DeviceProperties device_properties(Device device) {
  const int index = resolve_device(device);
  const DriverApi& api = process_driver();
  const CUdevice driver_device = process_contexts().driver_device(index);
  const auto object = [index] { return describe(index); };
  const auto value = [&](CUdevice_attribute which) { return attribute(api, driver_device, index, which); };

  DeviceProperties properties;
  char name[256] = "";
  check_driver(api, api.device_get_name(name, sizeof name, driver_device), DriverEntryId::device_get_name, object);
  properties.name = name;
  CUuuid uuid{};
  check_driver(api, api.device_get_uuid(&uuid, driver_device), DriverEntryId::device_get_uuid, object);
  static_assert(sizeof uuid.bytes == sizeof properties.uuid);
  std::memcpy(properties.uuid.data(), uuid.bytes, sizeof uuid.bytes);
  check_driver(api, api.device_total_mem(&properties.total_memory, driver_device), DriverEntryId::device_total_mem,
               object);
  properties.compute_capability_major = value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  properties.compute_capability_minor = value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  properties.multiprocessor_count = value(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  properties.warp_size = value(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  properties.l2_cache_size = static_cast<std::size_t>(value(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  properties.pci_domain_id = value(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  properties.pci_bus_id = value(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  properties.pci_device_id = value(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  properties.virtual_memory_management =
      has_virtual_memory_entries(api) && value(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0;
  return properties;
}

MemoryInfo memory_info(Device device) {
  const int index = resolve_device(device);
  const DeviceScope scope(nullptr, index);
  MemoryInfo info;
  check_driver(scope.api(), scope.api().mem_get_info(&info.free, &info.total), DriverEntryId::mem_get_info,
               [index] { return describe(index); });
  return info;
}

bool can_access_peer(Device from, Device to) {
  const int source = resolve_device(from);
  const int target = resolve_device(to);
  if (source == target) return true;
  const DriverApi& api = process_driver();
  Contexts& contexts = process_contexts();
  int can_access = 0;
  check_driver(
      api, api.device_can_access_peer(&can_access, contexts.driver_device(source), contexts.driver_device(target)),
      DriverEntryId::device_can_access_peer, [&] { return fmt::format("device {} to device {}", source, target); });
  return can_access != 0;
}

void restore_current_device(int index) noexcept { current_index = index; }

}  // namespace cistern
