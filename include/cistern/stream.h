#pragma once

// Streams: in-order queues of device work.
//
// A Stream is a small value; copies name the same queue. Moving one copies it: a stream that was
// moved from names its queue still, and keeps it. Work on one stream runs in
// the order it was queued; work on different streams is unordered unless an event
// orders it. The default stream is the driver's legacy one: it waits for, and is
// awaited by, all blocking streams of its device.
// Destroying the last copy of a created stream is safe at any time: queued work still completes,
// and inside a host function, where no driver call is allowed, the driver's stream is destroyed later.
// Thread safety: any member may be called from any thread. The current stream is kept
// for each thread and device; a new thread starts on the default stream.
// Errors: DriverError, with the driver's code, if the driver fails, unless said otherwise.

#include <cistern/device.h>
#include <cistern/export.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

struct CUstream_st;  // the driver's own: CUstream is a pointer to it

namespace cistern {

struct DriverApi;
class Event;
class Graph;
struct EventOptions;

using StreamHandle = CUstream_st*;

// A stream's priority, as CUDA means it: lower is higher, 0 is the default. What the device lacks
// is clamped to its range when a stream is made, and can be read back (Stream::priority).
// Each framework's own scale is a conversion by name; a value outside that scale is refused there
// with InvalidArgument.
class CISTERN_EXPORT Priority {
 public:
  constexpr Priority() noexcept = default;
  constexpr Priority(int value) noexcept : value_(value) {}  // NOLINT(google-explicit-constructor): a plain number
  [[nodiscard]] constexpr int value() const noexcept { return value_; }

  // torch.cuda.Stream: -1 (high) or 0 (low, the default). More levels: see Stream::priority_range.
  [[nodiscard]] static Priority pytorch(int priority = 0);
  // cupy.cuda.Stream: any number, lower is higher; none is the default, 0.
  [[nodiscard]] static Priority cupy(std::optional<int> priority = std::nullopt) noexcept;
  // paddle.device.Stream: 1 (high) or 2 (normal); none is normal.
  [[nodiscard]] static Priority paddle(std::optional<int> priority = std::nullopt);
  // mindspore.hal.Stream: any number, lower is higher; 0 is the default.
  [[nodiscard]] static Priority mindspore(int priority = 0) noexcept;

  friend constexpr bool operator==(Priority a, Priority b) noexcept { return a.value_ == b.value_; }
  friend constexpr bool operator!=(Priority a, Priority b) noexcept { return a.value_ != b.value_; }

 private:
  int value_ = 0;
};

// From the lowest priority, the largest number, to the highest.
struct PriorityRange {
  int least = 0;
  int greatest = 0;
};

struct StreamOptions {
  Device device = {};
  Priority priority = {};
  // A non-blocking stream does not synchronise with the legacy default stream. Ours are
  // non-blocking unless asked otherwise, as PyTorch's and Paddle's (`blocking=False`) are; CuPy's
  // default is blocking: see StreamFlags.
  bool non_blocking = true;
};

// The flags of cupy.cuda.Stream, with its defaults. `null` wins over `per_thread` (CuPy's ptds);
// both name a default stream, for which `non_blocking`, `priority` and `device` mean nothing.
struct StreamFlags {
  bool null = false;
  bool non_blocking = false;
  bool per_thread = false;
  std::optional<int> priority = std::nullopt;
  Device device = {};
};

// What a capture may meet: which calls are unsafe while it is under way, and refused (CUDA Driver
// API, cuThreadExchangeStreamCaptureMode).
enum class CaptureMode {
  global,      // unsafe calls of any thread; only the thread that began it may end it
  per_thread,  // unsafe calls of this thread; only the thread that began it may end it
  relaxed,     // none; any thread may end it
};

enum class CaptureStatus {
  none,         // not capturing
  active,       // its work is recorded
  invalidated,  // a call broke the capture: end_capture fails and drops it
};

// Gets the stream, the driver's status (0, or the CUresult of the failure that ended the stream's
// work), and the user's data.
using StreamCallback = std::function<void(const class Stream& stream, int status, void* user_data)>;

class CISTERN_EXPORT Stream {
 public:
  // The legacy default stream of the device that is current when it is used.
  Stream() noexcept = default;
  ~Stream() = default;
  // No moves: a handle left behind without its owner would name a stream that may be gone.
  Stream(const Stream&) noexcept = default;
  Stream& operator=(const Stream&) noexcept = default;

  // A new driver stream, destroyed with its last copy; queued work still completes.
  [[nodiscard]] static Stream create(StreamOptions options = {});
  // One of 32 shared streams for each device and priority, handed out in turn and never
  // destroyed (torch.cuda.Stream). They are non-blocking, whatever the options say.
  [[nodiscard]] static Stream from_pool(StreamOptions options = {});
  // What cupy.cuda.Stream(null, non_blocking, ptds, priority) makes: see StreamFlags.
  [[nodiscard]] static Stream from_flags(const StreamFlags& flags);
  // The legacy default stream (handle 0), and the thread's own default stream (handle 2).
  [[nodiscard]] static Stream null() noexcept { return {}; }
  [[nodiscard]] static Stream per_thread() noexcept;
  // A stream that somebody else owns and keeps alive; `keep_alive` is released with the last copy.
  // CuPy's from_external and ExternalStream, PyTorch's ExternalStream.
  // Throws InvalidArgument for a device that is not there.
  [[nodiscard]] static Stream external(StreamHandle handle, Device device, std::shared_ptr<void> keep_alive = {});

  // Whether all work queued so far is done. Does not block.
  [[nodiscard]] bool query() const;
  [[nodiscard]] bool done() const { return query(); }
  // Blocks the host until all work queued so far is done.
  void synchronize() const;

  // Captures the work queued so far in a new event, or in `event`. Does not block. The new event
  // is a plain one as PyTorch's, without timing; or as `options` say: EventOptions::cupy() is
  // CuPy's plain event, which has timing, EventOptions::paddle() is Paddle's.
  [[nodiscard]] Event record_event() const;
  [[nodiscard]] Event record_event(const EventOptions& options) const;
  void record_event(Event& event) const;
  // Later work on this stream waits for what `event` last recorded. Does not block.
  void wait_event(const Event& event) const;
  // Later work on this stream waits for all work that is now on `other`. Does not block.
  void wait_stream(const Stream& other) const;
  // Runs `function` on a driver thread after the work queued so far, before later work. It must
  // make no driver call, directly or through cistern, and must not throw. It does not run if the
  // work before it fails: then a query or synchronisation of the device that finds the failure, or
  // another launch_host_func, destroys it. Captured, it runs at each launch of the graph, which then owns it.
  // Throws InvalidArgument if the function is empty.
  void launch_host_func(std::function<void()> function) const;
  void launch_host_func(std::function<void(void* user_data)> function, void* user_data) const;
  // As launch_host_func, but `callback` also gets the stream and a status, and runs after a
  // failure too, with that status. The Stream that it gets does not keep the queue alive.
  // Prefer launch_host_func: CUDA may deprecate and remove callbacks (CUDA Driver API,
  // cuStreamAddCallback), and they cannot be captured: NotSupported, and the capture goes on.
  void add_callback(StreamCallback callback, void* user_data = nullptr) const;

  // From now on the work queued on this stream is recorded, not run, until end_capture gives it
  // as a graph. The default mode is CuPy's. Begin and end are paired: a begin during a capture,
  // an end without one, on another stream of it, or by the wrong thread (see CaptureMode), and the
  // legacy default stream are the driver's errors. Calls that wait for the device, synchronous
  // copies among them, are refused during capture.
  void begin_capture(CaptureMode mode = CaptureMode::relaxed) const;
  // Ends the capture, also when it fails: because the capture was invalidated, or because a
  // stream that joined it was not joined back.
  [[nodiscard]] Graph end_capture() const;
  // Throws DriverError where the driver forbids the question: on the legacy default stream while
  // a blocking stream of the device captures.
  [[nodiscard]] CaptureStatus is_capturing() const;

  // Makes this stream the current one of its device, and that device the current one, as
  // set_stream does; for a while only: StreamGuard.
  const Stream& use() const;

  // The driver's handle: 0 for the legacy default stream, 2 for the per-thread one.
  [[nodiscard]] StreamHandle native_handle() const noexcept { return handle_; }
  // The driver's unique number of the stream: never used again after its destruction. The
  // legacy default stream has the largest number there is, whatever its device; the per-thread
  // one has another on each thread and device.
  [[nodiscard]] std::uint64_t id() const;
  // -1 for the default streams, which belong to whichever device is current.
  [[nodiscard]] Device device() const noexcept;
  // The priority that the driver gave it, within the device's range.
  [[nodiscard]] int priority() const;
  // The priorities that from_pool tells apart on a device: 0 to -3, or to the device's greatest.
  [[nodiscard]] static PriorityRange priority_range(Device device = {});
  [[nodiscard]] bool is_non_blocking() const;
  // E.g. "<Stream 0 (device -1)>", which is Stream::null().
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

// The priorities that the driver knows on a device: what Stream::create clamps to.
[[nodiscard]] CISTERN_EXPORT PriorityRange stream_priority_range(Device device = {});

// The stream on which this thread queues work for `device`, at first the default stream.
[[nodiscard]] CISTERN_EXPORT Stream current_stream(Device device = {});
[[nodiscard]] CISTERN_EXPORT Stream default_stream(Device device = {});
// Makes `stream` the current one of its device, and that device the current one. A default
// stream without a device becomes that of the current one.
CISTERN_EXPORT void set_stream(const Stream& stream);

// Makes `stream` and its device current, and restores both when it ends: first the stream of
// `stream`'s device, then the one that was current, and with it the device, whatever was made
// current in between. None changes and restores nothing. Guards nest, on one stream too.
// Not copyable; for use on one thread.
class CISTERN_EXPORT StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  explicit StreamGuard(const std::optional<Stream>& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

  // The stream that was current when the guard began; none for a guard of none.
  [[nodiscard]] std::optional<Stream> original_stream() const;

 private:
  struct Replaced {
    Stream on_original_device;
    Stream on_streams_device;
  };
  void enter(const Stream& stream);
  std::optional<Replaced> replaced_;
};

}  // namespace cistern

template <>
struct std::hash<cistern::Stream> {
  std::size_t operator()(const cistern::Stream& stream) const noexcept { return stream.hash(); }
};
