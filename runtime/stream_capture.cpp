// Capture of a stream's work, and the guards of it.

#include <cistern/error.h>
#include <cistern/graph.h>
#include <cistern/stream.h>
#include <fmt/format.h>

#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/graph_state.h"
#include "runtime/process_driver.h"
#include "runtime/stream_access.h"

namespace cistern {
namespace {

CUstreamCaptureMode driver_mode(CaptureMode mode) {
  switch (mode) {
    case CaptureMode::global:
      return CU_STREAM_CAPTURE_MODE_GLOBAL;
    case CaptureMode::per_thread:
      return CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    case CaptureMode::relaxed:
      return CU_STREAM_CAPTURE_MODE_RELAXED;
  }
  throw InvalidArgument(fmt::format("capture mode {}: expected global, per_thread or relaxed", static_cast<int>(mode)));
}

CaptureStatus status_of(CUstreamCaptureStatus status) noexcept {
  switch (status) {
    case CU_STREAM_CAPTURE_STATUS_NONE:
      return CaptureStatus::none;
    case CU_STREAM_CAPTURE_STATUS_ACTIVE:
      return CaptureStatus::active;
    case CU_STREAM_CAPTURE_STATUS_INVALIDATED:
      break;
  }
  return CaptureStatus::invalidated;
}

// Returns the mode before.
CUstreamCaptureMode exchange_mode(CUstreamCaptureMode mode) {
  const DriverApi& api = process_driver();
  check_driver(api, api.thread_exchange_stream_capture_mode(&mode), DriverEntryId::thread_exchange_stream_capture_mode,
               [] { return std::string("this thread"); });
  return mode;
}

bool is_still_capturing(const Stream& stream) noexcept try {
  return stream.is_capturing() != CaptureStatus::none;
} catch (const Error&) {
  return false;  // the driver is gone, and the capture with it
}

}  // namespace

void Stream::begin_capture(CaptureMode mode) const {
  const CUstreamCaptureMode asked = driver_mode(mode);
  const DeviceScope scope(driver_, StreamAccess::device(*this));
  check_driver(scope.api(), scope.api().stream_begin_capture(handle_, asked), DriverEntryId::stream_begin_capture,
               [this] { return to_string(); });
}

Graph Stream::end_capture() const {
  const int device = StreamAccess::device(*this);
  // Made first: without host memory the capture goes on, and can be ended again.
  auto state = std::make_shared<GraphAccess::State>(driver_, device);
  const DeviceScope scope(driver_, device);
  check_driver(scope.api(), scope.api().stream_end_capture(handle_, &state->graph), DriverEntryId::stream_end_capture,
               [this] { return to_string(); });
  return GraphAccess::make(std::move(state));
}

CaptureStatus Stream::is_capturing() const {
  const DeviceScope scope(driver_, StreamAccess::device(*this));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check_driver(scope.api(), scope.api().stream_is_capturing(handle_, &status), DriverEntryId::stream_is_capturing,
               [this] { return to_string(); });
  return status_of(status);
}

CaptureGuard::CaptureGuard(const Stream& stream, CaptureMode mode) : stream_(stream) { stream_.begin_capture(mode); }

CaptureGuard::~CaptureGuard() {
  if (!active_) return;
  try {
    static_cast<void>(stream_.end_capture());
  } catch (...) {
    // The capture was invalid, and is gone with this; or the driver is.
  }
}

Graph CaptureGuard::end() {
  if (!active_) throw InvalidArgument(fmt::format("the capture of {} has ended already", stream_.to_string()));
  try {
    Graph graph = stream_.end_capture();
    active_ = false;
    return graph;
  } catch (const DriverError&) {
    // An end that was refused, by the wrong thread say, leaves an invalid capture to the destructor.
    active_ = is_still_capturing(stream_);
    throw;
  }
}

CaptureModeGuard::CaptureModeGuard(CaptureMode mode) : previous_(exchange_mode(driver_mode(mode))) {}

CaptureModeGuard::~CaptureModeGuard() {
  try {
    static_cast<void>(exchange_mode(static_cast<CUstreamCaptureMode>(previous_)));
  } catch (...) {
    // Only a driver that is gone refuses a mode that it gave itself.
  }
}

}  // namespace cistern
