#pragma once

// Devices by their UUID, which is the same in every process and whatever is visible there.

#include <cistern/device.h>

#include "runtime/driver_api.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace cistern {

using DeviceUuidBytes = std::array<std::uint8_t, 16>;

// The UUID of a device, and of the process's driver's. Throws DriverError.
[[nodiscard]] DeviceUuidBytes uuid_of_device(const DriverApi& api, CUdevice device);
[[nodiscard]] DeviceUuidBytes uuid_of_device(int device);
// The device with this UUID; none if this process does not see it.
[[nodiscard]] std::optional<int> device_with_uuid(const DeviceUuidBytes& uuid);
// "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
[[nodiscard]] std::string uuid_text(const DeviceUuidBytes& uuid);

}  // namespace cistern
