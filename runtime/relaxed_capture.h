#pragma once

// For a scope, this thread's calls that a capture would be broken by are let through: what a library makes
// for itself is not of the capture that may be under way.

#include <string>

#include "runtime/driver_error.h"

namespace cistern {

class RelaxedCapture {
 public:
  // `purpose`, for the error. Throws DriverError.
  RelaxedCapture(const DriverApi& api, const char* purpose) : api_(api) {
    check_driver(api_, api_.thread_exchange_stream_capture_mode(&mode_),
                 DriverEntryId::thread_exchange_stream_capture_mode, [&] { return std::string(purpose); });
  }
  ~RelaxedCapture() { static_cast<void>(api_.thread_exchange_stream_capture_mode(&mode_)); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const DriverApi& api_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace cistern
