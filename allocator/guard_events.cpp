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

CUresult record_guard(Contexts& contexts, EventPools& pools, const StreamUse& use, bool during_capture, bool may_wait,
                      CUevent* event) noexcept {
  const DriverApi& api = contexts.api();
  EventPool& pool = pools.of(use.device);
  CUevent taken = std::exchange(*event, nullptr);
  CUresult result = CUDA_ERROR_INVALID_CONTEXT;
  try {
    const DriverScope scope(api, contexts.primary(use.device), during_capture);
    if (!names_its_stream(api, use)) {
      result = may_wait ? api.ctx_synchronize() : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (is_captured_now(api, use.stream)) {
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else {
      result = taken != nullptr ? CUDA_SUCCESS : pool.acquire(&taken);
      if (result == CUDA_SUCCESS) result = api.event_record(taken, use.stream.handle);
      if (result == CUDA_SUCCESS) *event = std::exchange(taken, nullptr);
    }
  } catch (...) {  // the context could not be made current
    result = CUDA_ERROR_INVALID_CONTEXT;
  }
  if (taken != nullptr) pool.release(taken);
  return result;
}

}  // namespace cistern
