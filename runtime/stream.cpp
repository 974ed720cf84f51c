#include <cistern/error.h>
#include <cistern/event.h>
#include <cistern/stream.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/deferred_destruction.h"
#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/process_driver.h"
#include "runtime/queued_functions.h"
#include "runtime/stream_access.h"
#include "runtime/stream_pool.h"

namespace cistern {
namespace {

// Destroys a stream of the process's driver with its last copy. Work that is queued on it
// still completes: the driver sees to that.
class StreamOwner {
 public:
  StreamOwner(CUstream handle, int device) : handle_(handle), device_(device) {}
  StreamOwner(const StreamOwner&) = delete;
  StreamOwner& operator=(const StreamOwner&) = delete;
  ~StreamOwner() { destroy_on_device(nullptr, device_, handle_); }

 private:
  CUstream handle_;
  int device_;
};

}  // namespace

Stream Stream::create(StreamOptions options) {
  destroy_deferred();
  const int device = resolve_device(options.device);
  const DeviceScope scope(nullptr, device);
  const PriorityRange range = driver_priority_range(scope.api(), device);
  const StreamIdentity identity =
      create_stream(scope.api(), device, options.non_blocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT,
                    std::clamp(options.priority.value(), range.greatest, range.least));
  Stream stream;
  try {
    stream.owner_ = std::make_shared<StreamOwner>(identity.handle, device);
  } catch (...) {
    static_cast<void>(scope.api().stream_destroy(identity.handle));
    throw;
  }
  stream.handle_ = identity.handle;
  stream.id_ = identity.id;
  stream.device_ = device;
  process_contexts().known_streams().add(identity, device);
  return stream;
}

Stream Stream::from_pool(StreamOptions options) {
  const int device = resolve_device(options.device);
  const StreamIdentity identity = process_stream_pool().next(device, options.priority.value());
  Stream stream;
  stream.handle_ = identity.handle;
  stream.id_ = identity.id;
  stream.device_ = device;
  return stream;
}

Stream Stream::from_flags(const StreamFlags& flags) {
  if (flags.null) return null();
  if (flags.per_thread) return per_thread();
  StreamOptions options;
  options.device = flags.device;
  options.priority = Priority::cupy(flags.priority);
  options.non_blocking = flags.non_blocking;
  return create(options);
}

Stream Stream::per_thread() noexcept {
  Stream stream;
  stream.handle_ = per_thread_handle();
  return stream;
}

Stream Stream::external(StreamHandle handle, Device device, std::shared_ptr<void> keep_alive) {
  Stream stream;
  stream.device_ = resolve_device(device);
  stream.owner_ = std::move(keep_alive);
  if (is_legacy(handle)) return stream;
  stream.handle_ = handle;
  // Another one on each thread: its id is asked for at each use.
  if (handle == per_thread_handle()) return stream;
  KnownStream known;
  stream.id_ = process_contexts().known_streams().find(handle, &known) ? known.id : StreamAccess::identity(stream).id;
  return stream;
}

bool Stream::query() const {
  const DeviceScope scope(driver_, StreamAccess::device(*this));
  const CUresult result = scope.api().stream_query(handle_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  drop_functions_after(result, driver_, StreamAccess::device(*this));
  check_driver(scope.api(), result, DriverEntryId::stream_query, [this] { return to_string(); });
  return true;
}

void Stream::synchronize() const {
  destroy_deferred();
  const int device = StreamAccess::device(*this);
  const DeviceScope scope(driver_, device);
  const CUresult result = scope.api().stream_synchronize(handle_);
  drop_functions_after(result, driver_, device);
  check_driver(scope.api(), result, DriverEntryId::stream_synchronize, [this] { return to_string(); });
}

Event Stream::record_event() const {
  Event event;
  event.record(*this);
  return event;
}

Event Stream::record_event(const EventOptions& options) const {
  Event event(options);
  event.record(*this);
  return event;
}

void Stream::record_event(Event& event) const { event.record(*this); }

void Stream::wait_event(const Event& event) const { event.wait(*this); }

void Stream::wait_stream(const Stream& other) const { other.record_event().wait(*this); }

std::uint64_t Stream::id() const { return StreamAccess::identity(*this).id; }

Device Stream::device() const noexcept { return device_ < 0 ? Device() : Device(device_); }

int Stream::priority() const {
  const DeviceScope scope(driver_, StreamAccess::device(*this));
  int priority = 0;
  check_driver(scope.api(), scope.api().stream_get_priority(handle_, &priority), DriverEntryId::stream_get_priority,
               [this] { return to_string(); });
  return priority;
}

bool Stream::is_non_blocking() const {
  const DeviceScope scope(driver_, StreamAccess::device(*this));
  unsigned flags = 0;
  check_driver(scope.api(), scope.api().stream_get_flags(handle_, &flags), DriverEntryId::stream_get_flags,
               [this] { return to_string(); });
  return (flags & CU_STREAM_NON_BLOCKING) != 0;
}

std::string Stream::to_string() const {
  return fmt::format("<Stream {} (device {})>", reinterpret_cast<std::uintptr_t>(handle_), device_);
}

std::size_t Stream::hash() const noexcept {
  // Handles are aligned addresses: the multiplication spreads them over the high bits, the
  // device goes into the low ones.
  const std::uint64_t spread = reinterpret_cast<std::uintptr_t>(handle_) * std::uint64_t{0x9e3779b97f4a7c15};
  return static_cast<std::size_t>((spread >> 16) ^ (spread << 16) ^ static_cast<std::uint64_t>(device_ + 1));
}

}  // namespace cistern
