#include <cistern/error.h>
#include <cistern/event.h>
#include <fmt/format.h>

#include <utility>

#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/stream_access.h"

namespace cistern {

struct Event::State {
  EventOptions options;
  const DriverApi* driver = nullptr;  // of the recording stream; null: the process's
  CUevent handle = nullptr;           // null: not made yet
  int device = -1;

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

  void create(const Stream& stream);
  void destroy() noexcept;
  // Throws InvalidArgument if the stream cannot record this event.
  void require_recordable_on(const Stream& stream) const;
};

void Event::State::create(const Stream& stream) {
  const DriverApi* const stream_driver = StreamAccess::driver(stream);
  const int stream_device = StreamAccess::device(stream);
  const DeviceScope in_context(stream_driver, stream_device);
  CUevent made = nullptr;
  check_driver(in_context.api(), in_context.api().event_create(&made, flags()), DriverEntryId::event_create,
               [&] { return fmt::format("an event on device {}", stream_device); });
  handle = made;
  driver = stream_driver;
  device = stream_device;
}

void Event::State::destroy() noexcept {
  if (handle == nullptr) return;
  try {
    const DeviceScope in_context = scope();
    // A refusal means that the driver or the context is gone, and the event with it.
    static_cast<void>(in_context.api().event_destroy(handle));
  } catch (...) {
    // The context cannot be entered: as above, or this is a forked child and the event is the
    // parent's.
  }
  handle = nullptr;
  driver = nullptr;
  device = -1;
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

Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::record(const Stream& stream) {
  if (state_ == nullptr)
    throw InvalidArgument(fmt::format("record on {}: the event was moved from", stream.to_string()));
  const bool is_first = !is_created();
  state_->require_recordable_on(stream);
  if (is_first) state_->create(stream);
  const DeviceScope in_context = state_->scope();
  const CUresult result = in_context.api().event_record(state_->handle, stream.native_handle());
  if (result == CUDA_SUCCESS) return;
  const std::string object = fmt::format("{} on {}", state_->describe(), stream.to_string());
  if (is_first) state_->destroy();
  throw_driver_error(in_context.api(), result, DriverEntryId::event_record, object);
}

void Event::record() {
  if (is_created() && state_->driver != nullptr)
    throw InvalidArgument(
        fmt::format("record of {}: it belongs to another driver than the process's own, which has "
                    "no current stream; expected a stream",
                    state_->describe()));
  record(current_stream(device()));
}

bool Event::query() const {
  if (!is_created()) return true;
  const DeviceScope in_context = state_->scope();
  const CUresult result = in_context.api().event_query(state_->handle);
  if (result == CUDA_ERROR_NOT_READY) return false;
  check_driver(in_context.api(), result, DriverEntryId::event_query, [this] { return state_->describe(); });
  return true;
}

void Event::synchronize() const {
  if (!is_created()) return;
  const DeviceScope in_context = state_->scope();
  check_driver(in_context.api(), in_context.api().event_synchronize(state_->handle), DriverEntryId::event_synchronize,
               [this] { return state_->describe(); });
}

void Event::wait(const Stream& stream) const {
  if (!is_created()) return;
  if (StreamAccess::driver(stream) != state_->driver)
    throw InvalidArgument(
        fmt::format("wait of {} for {}: they belong to different drivers", stream.to_string(), state_->describe()));
  // In the context of the waiting stream: a default stream is that of the current context.
  const DeviceScope in_context(state_->driver, StreamAccess::device(stream));
  check_driver(in_context.api(), in_context.api().stream_wait_event(stream.native_handle(), state_->handle, 0),
               DriverEntryId::stream_wait_event,
               [&] { return fmt::format("{} for {}", stream.to_string(), state_->describe()); });
}

void Event::wait() const {
  if (is_created()) wait(current_stream());
}

float Event::elapsed_time(const Event& end) const {
  for (const auto& [event, name] : {std::pair(this, "first"), std::pair(&end, "second")}) {
    if (!event->is_created()) throw InvalidArgument(fmt::format("elapsed_time: the {} event was not recorded", name));
    if (!event->state_->options.enable_timing)
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

}  // namespace cistern
