#pragma once

// Events: marks in a stream's work that others can wait for.
//
// The driver's event is made by the first record, on the recording stream's device, or by
// the export to another process, on the current one. Before that `query` is true, and `wait`
// and `synchronize` do nothing (as PyTorch's).
// Recording again replaces the captured work; what waits already keeps what it waits for.
// Any use of an event that was moved from throws InvalidArgument, but is_created, device and
// native_handle, which answer as before the first record; it may be assigned.
// Errors: DriverError, with the driver's code, if the driver fails, unless said otherwise.
// Complexity: O(1), of one to three calls of the driver.
// Thread safety: an Event is a value like std::unique_ptr: different threads may use
// different events; one event needs the caller's own ordering.

#include <cistern/device.h>
#include <cistern/export.h>
#include <cistern/stream.h>

#include <memory>

struct CUevent_st;  // the driver's own: CUevent is a pointer to it

namespace cistern {

class EventHandle;  // ipc.h: an event's name for other processes, as bytes

// The defaults are PyTorch's and MindSpore's plain event, and Paddle's.
struct EventOptions {
  bool enable_timing = false;
  bool blocking = false;      // the host sleeps in `synchronize` instead of spinning
  bool interprocess = false;  // may be shared with other processes; excludes timing
  // In a capture, `record` and `wait` become nodes of the graph that act on this event, instead of
  // edges within the graph. Without effect outside of capture. Not for joining captured streams.
  bool external = false;

  [[nodiscard]] static constexpr EventOptions pytorch() noexcept { return {}; }
  // cupy.cuda.Event(block=False, disable_timing=False, interprocess=False): with timing.
  [[nodiscard]] static constexpr EventOptions cupy() noexcept {
    EventOptions options{};
    options.enable_timing = true;
    return options;
  }
  // paddle.device.Event(enable_timing=False, blocking=False, interprocess=False).
  [[nodiscard]] static constexpr EventOptions paddle() noexcept { return {}; }
  // mindspore.hal.Event(enable_timing=False, blocking=False).
  [[nodiscard]] static constexpr EventOptions mindspore() noexcept { return {}; }
};

class CISTERN_EXPORT Event {
 public:
  using Handle = CUevent_st*;

  // Throws InvalidArgument when both `enable_timing` and `interprocess` are asked for.
  explicit Event(EventOptions options = {});
  // Releases the driver's event; never throws. Waits queued on it stay in force.
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  // A view of an event that somebody else owns and keeps alive: used as one's own, not destroyed.
  // The driver says then whether it has timing. Throws InvalidArgument for a null handle.
  [[nodiscard]] static Event view(Handle handle, Device device = {});

  // A name of this event for other processes, which open it with from_ipc_handle; the event is made
  // on the current device if nothing was recorded yet. It must live while others use it.
  // Throws InvalidArgument without the option `interprocess`, or for a view; NotSupported where the
  // device cannot.
  [[nodiscard]] EventHandle ipc_handle() const;
  // The event of another process: recorded there, or here on its own device. The device is found by
  // its UUID; a device that is named must be that one, else InvalidArgument names both.
  [[nodiscard]] static Event from_ipc_handle(const EventHandle& handle);
  [[nodiscard]] static Event from_ipc_handle(Device device, const EventHandle& handle);

  // Captures the work queued so far on `stream`, or on the current stream of the event's
  // device (the current device if the event is not made yet). Does not block.
  // Throws InvalidArgument, naming both devices, if the event belongs to another device; it and
  // the stream are as before then.
  void record(const Stream& stream);
  void record();
  // Whether the captured work is done. Does not block.
  [[nodiscard]] bool query() const;
  // Blocks the host until the captured work is done.
  void synchronize() const;
  // Later work on `stream`, of any device, waits for the captured work. Does not block.
  void wait(const Stream& stream) const;
  void wait() const;
  // Milliseconds between this event and `end`. Throws InvalidArgument if either lacks
  // timing, was not recorded, or is on another device; NotReady if either is unfinished.
  [[nodiscard]] float elapsed_time(const Event& end) const;

  // Whether the driver's event exists, and on which device (-1 before that).
  [[nodiscard]] bool is_created() const noexcept;
  [[nodiscard]] Device device() const noexcept;
  // The driver's handle, which stays this object's; null before the driver's event exists.
  [[nodiscard]] Handle native_handle() const noexcept;
  // What it was made with; a view has the defaults.
  [[nodiscard]] EventOptions options() const;

 private:
  struct State;
  explicit Event(std::unique_ptr<State> state) noexcept;
  // Throws InvalidArgument, naming the operation, if the event was moved from.
  [[nodiscard]] State& require(const char* operation) const;
  std::unique_ptr<State> state_;
};

}  // namespace cistern
