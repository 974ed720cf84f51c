#pragma once

// What an Event holds.

#include <cistern/event.h>
#include <fmt/format.h>

#include <string>

#include "runtime/device_scope.h"
#include "runtime/driver_api.h"

namespace cistern {

struct Event::State {
  EventOptions options;
  const DriverApi* driver = nullptr;  // of the recording stream; null: the process's
  CUevent handle = nullptr;           // null: not made yet
  int device = -1;
  bool is_view = false;  // somebody else's, not destroyed

  explicit State(EventOptions asked) : options(asked) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { destroy(); }

  [[nodiscard]] DeviceScope scope() const { return {driver, device}; }
  [[nodiscard]] std::string describe() const {
    return fmt::format("event {} on device {}", static_cast<void*>(handle), device);
  }
  [[nodiscard]] unsigned flags() const {
    unsigned flags = CU_EVENT_DEFAULT;
    if (!options.enable_timing) flags |= CU_EVENT_DISABLE_TIMING;
    if (options.blocking) flags |= CU_EVENT_BLOCKING_SYNC;
    if (options.interprocess) flags |= CU_EVENT_INTERPROCESS;
    return flags;
  }

  // Makes the driver's event, on a device of a driver (null: the process's).
  void create(const DriverApi* its_driver, int its_device);
  void destroy() noexcept;
  // The flag, but where `stream` does not capture: there the driver refuses it.
  [[nodiscard]] unsigned external_flag(const DriverApi& api, const Stream& stream, unsigned flag) const;
  // Throws InvalidArgument if the stream cannot record this event.
  void require_recordable_on(const Stream& stream) const;
};

}  // namespace cistern
