#include "allocator/guard_events.h"

#include "allocator/driver_scope.h"

#include <utility>

namespace cistern {

bool names_its_stream(const DriverApi& api, const StreamUse& use) {
  const bool is_kept = use.owner != nullptr && use.stream.handle != per_thread_handle();
  if (is_kept || use.stream.id == kLegacyStreamId) return true;
  StreamIdentity named;
  return identify_stream(api, use.stream.handle, &named) == CUDA_SUCCESS && named.id == use.stream.id;
}

bool is_captured_now(const DriverApi& api, const StreamIdentity& stream) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = api.stream_is_capturing(stream.handle, &status);
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

namespace {

// A default stream is that of the current context.
bool names_its_context(const StreamIdentity& stream) noexcept {
  return !is_legacy(stream.handle) && stream.handle != per_thread_handle();
}

// `idle`: an event to record, taken from the pool if there is none; null after success, for `event` has it.
CUresult record(const DriverApi& api, EventPool& pool, const StreamIdentity& stream, CUevent* idle, CUevent* event) {
  if (is_captured_now(api, stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  CUresult result = *idle != nullptr ? CUDA_SUCCESS : pool.acquire(idle);
  if (result == CUDA_SUCCESS) result = api.event_record(*idle, stream.handle);
  if (result == CUDA_SUCCESS) *event = std::exchange(*idle, nullptr);
  return result;
}

}  // namespace

CUresult record_guard(Contexts& contexts, EventPools& pools, const StreamUse& use, bool during_capture, bool may_wait,
                      CUevent* event) noexcept {
  const DriverApi& api = contexts.api();
  EventPool& pool = pools.of(use.device);
  CUevent idle = std::exchange(*event, nullptr);
  CUresult result = CUDA_ERROR_INVALID_CONTEXT;
  try {
    // An event that is there and a stream that names its context need no other to be current, unless the driver says
    // so.
    if (idle != nullptr && !during_capture && names_its_context(use.stream) && names_its_stream(api, use))
      result = record(api, pool, use.stream, &idle, event);
    if (result == CUDA_ERROR_INVALID_CONTEXT) {
      const DriverScope scope(api, contexts.primary(use.device), during_capture);
      if (names_its_stream(api, use))
        result = record(api, pool, use.stream, &idle, event);
      else
        result = may_wait ? api.ctx_synchronize() : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  } catch (...) {  // the context could not be made current
    result = CUDA_ERROR_INVALID_CONTEXT;
  }
  if (idle != nullptr) pool.release(idle);
  return result;
}

}  // namespace cistern
