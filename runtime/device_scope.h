#pragma once

// Works on a device of the process's driver, or of any other, for a scope.

#include "runtime/context.h"
#include "runtime/driver_api.h"

namespace cistern {

// A share in a device's primary context. The process's driver keeps its contexts; of another
// driver the share is this object's own.
class PrimaryContext {
 public:
  // `driver`: null for the process's own, which it loads. Throws as Contexts does.
  PrimaryContext(const DriverApi* driver, int device);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  [[nodiscard]] const DriverApi& api() const noexcept { return api_; }
  [[nodiscard]] CUcontext get() const noexcept { return context_; }

 private:
  const DriverApi& api_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  bool retained_ = false;
};

// Makes the device's primary context current on this thread and restores the one before.
class DeviceScope {
 public:
  // As PrimaryContext.
  DeviceScope(const DriverApi* driver, int device);
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  [[nodiscard]] const DriverApi& api() const noexcept { return share_.api(); }

 private:
  PrimaryContext share_;
  ContextGuard guard_;  // ends before the share does
};

}  // namespace cistern
