#include "runtime/device_uuid.h"

#include <fmt/format.h>

#include <cstring>

#include "runtime/driver_error.h"
#include "runtime/process_driver.h"

namespace cistern {

DeviceUuidBytes uuid_of_device(const DriverApi& api, CUdevice device) {
  CUuuid uuid{};
  check_driver(api, api.device_get_uuid(&uuid, device), DriverEntryId::device_get_uuid,
               [device] { return fmt::format("device {}", device); });
  DeviceUuidBytes bytes{};
  static_assert(sizeof uuid.bytes == sizeof bytes);
  std::memcpy(bytes.data(), uuid.bytes, sizeof bytes);
  return bytes;
}

DeviceUuidBytes uuid_of_device(int device) {
  return uuid_of_device(process_driver(), process_contexts().driver_device(device));
}

std::optional<int> device_with_uuid(const DeviceUuidBytes& uuid) {
  const int count = process_contexts().device_count();
  for (int device = 0; device < count; ++device)
    if (uuid_of_device(device) == uuid) return device;
  return std::nullopt;
}

std::string uuid_text(const DeviceUuidBytes& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i)
    text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
  return text;
}

}  // namespace cistern
