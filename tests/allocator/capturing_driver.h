#pragma once

// The simulated driver behind a table of our own, in which the test says which streams are
// captured, and which refuses what a driver refuses meanwhile: calls that are unsafe in a capture,
// unless the calling thread is in relaxed mode. It tells nothing about graphs; it shows what the
// allocator asks of a driver that captures.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>

#include <map>
#include <mutex>

#include "runtime/driver_api.h"

namespace cistern {

class CapturingDriver {
 public:
  explicit CapturingDriver(SimulatedOptions options) : driver(std::move(options)), api(driver.api()) {
    api.stream_is_capturing = {this, [](void* self, CUstream stream, CUstreamCaptureStatus* status) {
                                 return of(self).ask(stream, status, nullptr);
                               }};
    api.stream_get_capture_info = {
        this, [](void* self, CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph*,
                 const CUgraphNode**, std::size_t*) { return of(self).ask(stream, status, id); }};
    api.thread_exchange_stream_capture_mode = {this, [](void*, CUstreamCaptureMode* mode) {
                                                 std::swap(*mode, thread_mode());
                                                 return CUDA_SUCCESS;
                                               }};
    api.event_query = {this, [](void* self, CUevent event) {
                         return of(self).unsafe([&] { return of(self).driver.api().event_query(event); });
                       }};
    api.event_synchronize = {this, [](void* self, CUevent event) {
                               return of(self).unsafe([&] { return of(self).driver.api().event_synchronize(event); });
                             }};
    api.mem_alloc = {this, [](void* self, CUdeviceptr* pointer, std::size_t bytes) {
                       return of(self).unsafe([&] { return of(self).driver.api().mem_alloc(pointer, bytes); });
                     }};
    api.mem_free = {this, [](void* self, CUdeviceptr pointer) {
                      return of(self).unsafe([&] { return of(self).driver.api().mem_free(pointer); });
                    }};
    api.stream_synchronize = {this, [](void* self, CUstream stream) {
                                if (of(self).is_captured(stream)) return of(self).invalidate();
                                return of(self).driver.api().stream_synchronize(stream);
                              }};
    api.event_record = {this, [](void* self, CUevent event, CUstream stream) {
                          if (of(self).is_captured(stream)) return of(self).invalidate();
                          return of(self).driver.api().event_record(event, stream);
                        }};
  }

  void begin_capture(StreamHandle stream, std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    captures_[stream] = id;
  }
  void end_capture(StreamHandle stream) {
    const std::lock_guard lock(mutex_);
    captures_.erase(stream);
  }
  // Whether a call did what ends a capture.
  [[nodiscard]] bool invalidated() const {
    const std::lock_guard lock(mutex_);
    return invalidated_;
  }
  // How often it was asked whether a stream is captured.
  [[nodiscard]] int questions() const {
    const std::lock_guard lock(mutex_);
    return questions_;
  }

  SimulatedDriver driver;
  DriverApi api;

 private:
  static CapturingDriver& of(void* self) { return *static_cast<CapturingDriver*>(self); }
  static CUstreamCaptureMode& thread_mode() {
    thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return mode;
  }

  CUresult ask(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
    const std::lock_guard lock(mutex_);
    ++questions_;
    const auto capture = captures_.find(stream);
    *status = capture == captures_.end() ? CU_STREAM_CAPTURE_STATUS_NONE : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (id != nullptr && capture != captures_.end()) *id = capture->second;
    return CUDA_SUCCESS;
  }
  bool is_captured(CUstream stream) {
    const std::lock_guard lock(mutex_);
    return captures_.count(stream) != 0;
  }
  CUresult invalidate() {
    const std::lock_guard lock(mutex_);
    invalidated_ = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  template <class Call>
  CUresult unsafe(Call&& call) {
    bool forbidden = false;
    {
      const std::lock_guard lock(mutex_);
      forbidden = !captures_.empty() && thread_mode() != CU_STREAM_CAPTURE_MODE_RELAXED;
    }
    return forbidden ? invalidate() : call();
  }

  mutable std::mutex mutex_;
  std::map<CUstream, std::uint64_t> captures_;
  bool invalidated_ = false;
  int questions_ = 0;
};

}  // namespace cistern
