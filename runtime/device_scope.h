#pragma once

// DeviceScope: works on a device of the process's driver, or of any other, for a scope.

#include "runtime/context.h"
#include "runtime/driver_api.h"

namespace cistern {

// Makes the device's primary context current on this thread and restores the one before.
// The process's driver keeps its contexts; of another driver the scope holds its own share.
class DeviceScope {
 public:
  // `driver`: null for the process's own, which it loads. Throws as Contexts does.
  DeviceScope(const DriverApi* driver, int device);
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  [[nodiscard]] const DriverApi& api() const noexcept { return share_.api; }

 private:
  struct Share {
    Share(const DriverApi* driver, int device);
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    const DriverApi& api;
    CUdevice device = 0;
    CUcontext context = nullptr;
    bool retained = false;
  };
  Share share_;
  ContextGuard guard_;  // ends before the share does
};

}  // namespace cistern
