#include <cistern/error.h>
#include <cistern/event.h>
#include <fmt/format.h>

#include <utility>

#include "runtime/deferred_destruction.h"
#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/event_state.h"
#include "runtime/process_driver.h"
#include "runtime/stream_access.h"

namespace cistern {

void Event::State::create(const DriverApi* its_driver, int its_device) {
  destroy_deferred();
  const DeviceScope in_context(its_driver, its_device);
  CUevent made = nullptr;
  check_driver(in_context.api(), in_context.api().event_create(&made, flags()), DriverEntryId::event_create,
               [&] { return fmt::format("an event on device {}", its_device); });
  handle = made;
  driver = its_driver;
  device = its_device;
}

void Event::State::destroy() noexcept {
  if (handle != nullptr && !is_view) destroy_on_device(driver, device, handle);
  handle = nullptr;
  driver = nullptr;
  device = -1;
}

unsigned Event::State::external_flag(const DriverApi& api, const Stream& stream, unsigned flag) const {
  if (!options.external) return 0;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check_driver(api, api.stream_is_capturing(stream.native_handle(), &status), DriverEntryId::stream_is_capturing,
               [&] { return stream.to_string(); });
  return status == CU_STREAM_CAPTURE_STATUS_NONE ? 0 : flag;
}

void Event::State::require_recordable_on(const Stream& stream) const {
  if (handle == nullptr) return;
  if (StreamAccess::driver(stream) != driver)
    throw InvalidArgument(
        fmt::format("record of {} on {}: they belong to different drivers", describe(), stream.to_string()));
  const int stream_device = StreamAccess::device(stream);
  if (stream_device != device)
    throw InvalidArgument(
        fmt::format("record of {} on {}, which is of device {}: an event stays on the device of "
                    "its first record, {}",
                    describe(), stream.to_string(), stream_device, device));
}

Event::Event(EventOptions options) {
  if (options.enable_timing && options.interprocess)
    throw InvalidArgument("an interprocess event cannot have timing: expected enable_timing or interprocess, not both");
  state_ = std::make_unique<State>(options);
}

Event::Event(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

Event Event::view(Handle handle, Device device) {
  if (handle == nullptr) throw InvalidArgument("view of a null event handle: expected a driver's event");
  auto state = std::make_unique<State>(EventOptions{});
  state->device = resolve_device(device);
  state->handle = handle;
  state->is_view = true;
  return Event(std::move(state));
}

Event::State& Event::require(const char* operation) const {
  if (state_ == nullptr) throw InvalidArgument(fmt::format("{} of an event that was moved from", operation));
  return *state_;
}

void Event::record(const Stream& stream) {
  State& state = require("record");
  const bool is_first = !is_created();
  state.require_recordable_on(stream);
  if (is_first) state.create(StreamAccess::driver(stream), StreamAccess::device(stream));
  const DeviceScope in_context = state.scope();
  const DriverApi& api = in_context.api();
  const auto describe = [&] { return fmt::format("{} on {}", state.describe(), stream.to_string()); };
  try {
    const unsigned flag = state.external_flag(api, stream, CU_EVENT_RECORD_EXTERNAL);
    if (flag == 0)
      check_driver(api, api.event_record(state.handle, stream.native_handle()), DriverEntryId::event_record, describe);
    else
      check_driver(api, api.event_record_with_flags(state.handle, stream.native_handle(), flag),
                   DriverEntryId::event_record_with_flags, describe);
  } catch (...) {
    if (is_first) state.destroy();
    throw;
  }
}

void Event::record() {
  const State& state = require("record");
  if (state.driver != nullptr)
    throw InvalidArgument(
        fmt::format("record of {}: it belongs to another driver than the process's own, which has "
                    "no current stream; expected a stream",
                    state.describe()));
  record(current_stream(device()));
}

bool Event::query() const {
  const State& state = require("query");
  if (!is_created()) return true;
  const DeviceScope in_context = state.scope();
  const CUresult result = in_context.api().event_query(state.handle);
  if (result == CUDA_ERROR_NOT_READY) return false;
  check_driver(in_context.api(), result, DriverEntryId::event_query, [&] { return state.describe(); });
  return true;
}

void Event::synchronize() const {
  const State& state = require("synchronize");
  if (!is_created()) return;
  const DeviceScope in_context = state.scope();
  check_driver(in_context.api(), in_context.api().event_synchronize(state.handle), DriverEntryId::event_synchronize,
               [&] { return state.describe(); });
}

void Event::wait(const Stream& stream) const {
  const State& state = require("wait");
  if (!is_created()) return;
  if (StreamAccess::driver(stream) != state.driver)
    throw InvalidArgument(
        fmt::format("wait of {} for {}: they belong to different drivers", stream.to_string(), state.describe()));
  // In the context of the waiting stream: a default stream is that of the current context.
  const DeviceScope in_context(state.driver, StreamAccess::device(stream));
  const DriverApi& api = in_context.api();
  const unsigned flag = state.external_flag(api, stream, CU_EVENT_WAIT_EXTERNAL);
  check_driver(api, api.stream_wait_event(stream.native_handle(), state.handle, flag), DriverEntryId::stream_wait_event,
               [&] { return fmt::format("{} for {}", stream.to_string(), state.describe()); });
}

void Event::wait() const {
  static_cast<void>(require("wait"));
  if (is_created()) wait(current_stream());
}

float Event::elapsed_time(const Event& end) const {
  for (const auto& [event, name] : {std::pair(this, "first"), std::pair(&end, "second")}) {
    static_cast<void>(event->require("elapsed_time"));
    if (!event->is_created()) throw InvalidArgument(fmt::format("elapsed_time: the {} event was not recorded", name));
    if (!event->state_->options.enable_timing && !event->state_->is_view)
      throw InvalidArgument(fmt::format("elapsed_time: the {} event has no timing; expected enable_timing", name));
  }
  if (state_->driver != end.state_->driver || state_->device != end.state_->device)
    throw InvalidArgument(
        fmt::format("elapsed_time: {} and {} are on different devices", state_->describe(), end.state_->describe()));
  const DeviceScope in_context = state_->scope();
  float milliseconds = 0;
  const CUresult result = in_context.api().event_elapsed_time(&milliseconds, state_->handle, end.state_->handle);
  const auto object = [&] { return fmt::format("{} and {}", state_->describe(), end.state_->describe()); };
  if (result == CUDA_ERROR_NOT_READY)
    throw NotReady(fmt::format("elapsed_time of {}: the work before them is not done", object()));
  check_driver(in_context.api(), result, DriverEntryId::event_elapsed_time, object);
  return milliseconds;
}

bool Event::is_created() const noexcept { return state_ != nullptr && state_->handle != nullptr; }

Device Event::device() const noexcept { return is_created() ? Device(state_->device) : Device(); }

Event::Handle Event::native_handle() const noexcept { return is_created() ? state_->handle : nullptr; }

EventOptions Event::options() const { return require("options").options; }

}  // namespace cistern
