#include "runtime/device_scope.h"

#include <fmt/format.h>

#include "runtime/driver_error.h"
#include "runtime/process_driver.h"

namespace cistern {

DeviceScope::Share::Share(const DriverApi* driver, int index) : api(driver != nullptr ? *driver : process_driver()) {
  if (driver == nullptr) {
    context = process_contexts().primary(index);
    return;
  }
  const auto describe = [index] { return fmt::format("device {}", index); };
  check_driver(api, api.device_get(&device, index), DriverEntryId::device_get, describe);
  check_driver(api, api.primary_ctx_retain(&context, device), DriverEntryId::primary_ctx_retain, describe);
  retained = true;
}

DeviceScope::Share::~Share() {
  // Nothing can be done about a refusal: the driver is gone, and the context with it.
  if (retained) static_cast<void>(api.primary_ctx_release(device));
}

DeviceScope::DeviceScope(const DriverApi* driver, int device)
    : share_(driver, device), guard_(share_.api, share_.context) {}

}  // namespace cistern
