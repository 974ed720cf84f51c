#pragma once

// Streams: in-order queues of device work.
//
// A Stream is a small value; copies name the same queue. Work on one stream runs in
// the order it was queued; work on different streams is unordered unless an event
// orders it. The default stream is the driver's legacy one: it waits for, and is
// awaited by, all blocking streams of its device.
// Thread safety: any member may be called from any thread. The current stream is kept
// for each thread and device; a new thread starts on the default stream.
// Errors: DriverError if the driver fails, unless said otherwise.

#include <cistern/device.h>
#include <cistern/export.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

struct CUstream_st;  // the driver's own: CUstream is a pointer to it

namespace cistern {

struct DriverApi;
class Event;

using StreamHandle = CUstream_st*;

struct StreamOptions {
  Device device = {};
  // As in CUDA: lower is higher, 0 is the default. What the device lacks is clamped.
  int priority = 0;
  // A non-blocking stream does not synchronise with the legacy default stream.
  bool non_blocking = true;
};

class CISTERN_EXPORT Stream {
 public:
  // The legacy default stream of the device that is current when it is used.
  Stream() noexcept = default;

  // A new driver stream, destroyed with its last copy; queued work still completes.
  [[nodiscard]] static Stream create(StreamOptions options = {});
  // One of 32 shared streams for each device and priority, handed out in turn and never
  // destroyed (torch.cuda.Stream). They are non-blocking, whatever the options say.
  [[nodiscard]] static Stream from_pool(StreamOptions options = {});
  // The legacy default stream (handle 0), and the thread's own default stream (handle 2).
  [[nodiscard]] static Stream null() noexcept { return {}; }
  [[nodiscard]] static Stream per_thread() noexcept;
  // A stream that somebody else owns and keeps alive; `keep_alive` is released with the last copy.
  [[nodiscard]] static Stream external(StreamHandle handle, Device device, std::shared_ptr<void> keep_alive = {});

  // Whether all work queued so far is done. Does not block.
  [[nodiscard]] bool query() const;
  [[nodiscard]] bool done() const { return query(); }
  // Blocks the host until all work queued so far is done.
  void synchronize() const;

  // Captures the work queued so far in a new event, or in `event`. Does not block.
  [[nodiscard]] Event record_event() const;
  void record_event(Event& event) const;
  // Later work on this stream waits for what `event` last recorded. Does not block.
  void wait_event(const Event& event) const;
  // Later work on this stream waits for all work that is now on `other`. Does not block.
  void wait_stream(const Stream& other) const;
  // Runs `function` on a driver thread after the work queued so far, before later work.
  // It must make no driver call and must not throw.
  void launch_host_func(std::function<void()> function) const;

  // The driver's handle: 0 for the legacy default stream, 2 for the per-thread one.
  [[nodiscard]] StreamHandle native_handle() const noexcept { return handle_; }
  // The driver's unique number of the stream: never used again after its destruction. The
  // legacy default stream has the largest number there is, whatever its device; the per-thread
  // one has another on each thread and device.
  [[nodiscard]] std::uint64_t id() const;
  // -1 for the default streams, which belong to whichever device is current.
  [[nodiscard]] Device device() const noexcept;
  [[nodiscard]] int priority() const;
  [[nodiscard]] bool is_non_blocking() const;
  // E.g. "<Stream 0 (device -1)>".
  [[nodiscard]] std::string to_string() const;

  // Equal: same device and same handle. The order is total, on (device, handle).
  friend bool operator==(const Stream& a, const Stream& b) noexcept {
    return a.device_ == b.device_ && a.handle_ == b.handle_;
  }
  friend bool operator!=(const Stream& a, const Stream& b) noexcept { return !(a == b); }
  friend bool operator<(const Stream& a, const Stream& b) noexcept {
    return a.device_ != b.device_ ? a.device_ < b.device_ : std::less<>()(a.handle_, b.handle_);
  }
  friend bool operator>(const Stream& a, const Stream& b) noexcept { return b < a; }
  friend bool operator<=(const Stream& a, const Stream& b) noexcept { return !(b < a); }
  friend bool operator>=(const Stream& a, const Stream& b) noexcept { return !(a < b); }
  [[nodiscard]] std::size_t hash() const noexcept;

 private:
  friend struct StreamAccess;
  const DriverApi* driver_ = nullptr;  // null: the process's driver
  StreamHandle handle_ = nullptr;
  std::uint64_t id_ = 0;  // 0: not known yet, asked of the driver when needed
  int device_ = -1;
  std::shared_ptr<void> owner_;
};

// The stream on which this thread queues work for `device`, at first the default stream.
[[nodiscard]] CISTERN_EXPORT Stream current_stream(Device device = {});
[[nodiscard]] CISTERN_EXPORT Stream default_stream(Device device = {});
// Makes `stream` the current one of its device, and that device the current one.
CISTERN_EXPORT void set_stream(const Stream& stream);

// Makes `stream` and its device current, and restores both when it ends: first the
// stream of the other device, then the device. Not copyable; for use on one thread.
class CISTERN_EXPORT StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream replaced_;
  int previous_device_;
};

}  // namespace cistern

template <>
struct std::hash<cistern::Stream> {
  std::size_t operator()(const cistern::Stream& stream) const noexcept { return stream.hash(); }
};
