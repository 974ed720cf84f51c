// Guards of the current device.

#include <cistern/device.h>

#include "runtime/process_driver.h"

namespace cistern {

DeviceGuard::DeviceGuard(Device device) : previous_(current_device().index()) { cistern::set_device(device); }

DeviceGuard::~DeviceGuard() { restore_current_device(previous_); }

void DeviceGuard::set_device(Device device) { cistern::set_device(device); }

OptionalDeviceGuard::OptionalDeviceGuard(std::optional<Device> device) {
  if (device) set_device(*device);
}

OptionalDeviceGuard::~OptionalDeviceGuard() { reset(); }

void OptionalDeviceGuard::set_device(Device device) {
  const int before = current_device().index();
  cistern::set_device(device);
  if (!previous_) previous_ = before;
}

void OptionalDeviceGuard::reset() noexcept {
  if (previous_) restore_current_device(*previous_);
  previous_.reset();
}

std::optional<Device> OptionalDeviceGuard::original_device() const {
  if (!previous_) return std::nullopt;
  return Device(*previous_);
}

}  // namespace cistern
