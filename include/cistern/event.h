#pragma once

// Events: marks in a stream's work that others can wait for.
//
// The driver's event is made by the first record, on the recording stream's device.
// Before that `query` is true, and `wait` and `synchronize` do nothing (as PyTorch's).
// Thread safety: an Event is a value like std::unique_ptr: different threads may use
// different events; one event needs the caller's own ordering.

#include <cistern/device.h>
#include <cistern/export.h>
#include <cistern/stream.h>

#include <memory>

namespace cistern {

struct EventOptions {
  bool enable_timing = false;
  bool blocking = false;      // the host sleeps in `synchronize` instead of spinning
  bool interprocess = false;  // may be shared with other processes; excludes timing
};

class CISTERN_EXPORT Event {
 public:
  // Throws InvalidArgument when both `enable_timing` and `interprocess` are asked for.
  explicit Event(EventOptions options = {});
  // Releases the driver's event; never throws. Waits queued on it stay in force.
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Captures the work queued so far on `stream`, or on the current stream of the event's
  // device (the current device if the event is not made yet). Does not block.
  // Throws InvalidArgument, naming both devices, if the event belongs to another device.
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

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cistern
