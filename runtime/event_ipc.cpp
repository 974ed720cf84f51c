// Events that processes share.

#include <cistern/error.h>
#include <cistern/event.h>
#include <cistern/ipc.h>
#include <fmt/format.h>

#include <cstring>

#include "runtime/device_uuid.h"
#include "runtime/driver_error.h"
#include "runtime/event_state.h"
#include "runtime/process_driver.h"

namespace cistern {
namespace {

// The device that made the handle. Throws InvalidArgument if this process does not see it.
int device_of(const EventHandle& handle) {
  const auto device = device_with_uuid(handle.device());
  if (!device)
    throw InvalidArgument(
        fmt::format("from_ipc_handle of an event on device {}: no device of this process has that UUID",
                    uuid_text(handle.device())));
  return *device;
}

}  // namespace

EventHandle Event::ipc_handle() const {
  State& state = require("ipc_handle");
  if (!state.options.interprocess || state.is_view)
    throw InvalidArgument(fmt::format("ipc_handle of {}: expected one's own event, made with the option `interprocess`",
                                      state.describe()));
  if (state.driver != nullptr)
    throw InvalidArgument(
        fmt::format("ipc_handle of {}: it belongs to another driver than the process's own", state.describe()));
  const bool is_first = !is_created();
  const int device = is_first ? resolve_device({}) : state.device;
  if (!device_capabilities(device).ipc_events)
    throw NotSupported(fmt::format("ipc_handle of an event on device {}: the device has no shared events", device));
  const DeviceUuidBytes uuid = uuid_of_device(device);
  if (is_first) state.create(nullptr, device);
  try {
    const DeviceScope in_context = state.scope();
    CUipcEventHandle made{};
    check_driver(in_context.api(), in_context.api().ipc_get_event_handle(&made, state.handle),
                 DriverEntryId::ipc_get_event_handle, [&] { return state.describe(); });
    DriverIpcHandle bytes{};
    static_assert(sizeof made.reserved == sizeof bytes);
    std::memcpy(bytes.data(), made.reserved, sizeof bytes);
    return {bytes, uuid};
  } catch (...) {
    if (is_first) state.destroy();
    throw;
  }
}

Event Event::from_ipc_handle(const EventHandle& handle) {
  const int device = device_of(handle);
  if (!device_capabilities(device).ipc_events)
    throw NotSupported(
        fmt::format("from_ipc_handle of an event on device {}: the device has no shared events", device));
  EventOptions options;
  options.interprocess = true;
  auto state = std::make_unique<State>(options);
  CUipcEventHandle opened{};
  std::memcpy(opened.reserved, handle.driver().data(), sizeof opened.reserved);
  const DeviceScope in_context(nullptr, device);
  check_driver(in_context.api(), in_context.api().ipc_open_event_handle(&state->handle, opened),
               DriverEntryId::ipc_open_event_handle,
               [device] { return fmt::format("an event of another process on device {}", device); });
  state->device = device;
  return Event(std::move(state));
}

Event Event::from_ipc_handle(Device device, const EventHandle& handle) {
  const int asked = resolve_device(device);
  const int made_on = device_of(handle);
  if (asked != made_on)
    throw InvalidArgument(
        fmt::format("from_ipc_handle on device {}: the event is on device {}, and stays there", asked, made_on));
  return from_ipc_handle(handle);
}

}  // namespace cistern
