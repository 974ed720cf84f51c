#pragma once

// DriverScope: the calling thread set up for the heap's own driver calls, for a scope. RelaxedScope: without a context,
// for calls on what names its own.
//
// The first makes the context current. While a pool is recorded to, a stream may be under capture, during which the
// driver forbids calls such as cuMemAlloc and cuEventQuery, of any thread, and invalidates the capture (CUDA Driver
// API, "Stream Management", cuStreamBeginCapture and cuThreadExchangeStreamCaptureMode). The heap's calls queue nothing
// on a captured stream, so they are made in relaxed mode then.

#include "runtime/context.h"
#include "runtime/driver_api.h"

namespace cistern {

class RelaxedScope {
 public:
  // If the mode cannot be changed the calls are made all the same, and say what is wrong.
  RelaxedScope(const DriverApi& api, bool during_capture) noexcept : api_(during_capture ? &api : nullptr) {
    if (api_ != nullptr && api_->thread_exchange_stream_capture_mode(&mode_) != CUDA_SUCCESS) api_ = nullptr;
  }
  ~RelaxedScope() {
    if (api_ != nullptr) static_cast<void>(api_->thread_exchange_stream_capture_mode(&mode_));
  }
  RelaxedScope(const RelaxedScope&) = delete;
  RelaxedScope& operator=(const RelaxedScope&) = delete;

 private:
  const DriverApi* api_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // then that of before
};

class DriverScope {
 public:
  // Throws DriverError if the context cannot be made current.
  DriverScope(const DriverApi& api, CUcontext context, bool during_capture)
      : guard_(api, context), relaxed_(api, during_capture) {}

 private:
  ContextGuard guard_;
  RelaxedScope relaxed_;
};

}  // namespace cistern
