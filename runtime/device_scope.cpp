#include "runtime/device_scope.h"

#include <fmt/format.h>

#include "runtime/driver_error.h"
#include "runtime/process_driver.h"

namespace cistern {

PrimaryContext::PrimaryContext(const DriverApi* driver, int index)
    : api_(driver != nullptr ? *driver : process_driver()) {
  if (driver == nullptr) {
    context_ = process_contexts().primary(index);
    return;
  }
  const auto describe = [index] { return fmt::format("device {}", index); };
  check_driver(api_, api_.device_get(&device_, index), DriverEntryId::device_get, describe);
  check_driver(api_, api_.primary_ctx_retain(&context_, device_), DriverEntryId::primary_ctx_retain, describe);
  retained_ = true;
}

PrimaryContext::~PrimaryContext() {
  // Nothing can be done about a refusal: the driver is gone, and the context with it.
  if (retained_) static_cast<void>(api_.primary_ctx_release(device_));
}

DeviceScope::DeviceScope(const DriverApi* driver, int device)
    : share_(driver, device), guard_(share_.api(), share_.get()) {}

}  // namespace cistern
