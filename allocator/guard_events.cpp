#include "allocator/guard_events.h"

#include "allocator/driver_scope.h"

#include <utility>

namespace cistern {

namespace {

// Who registered the stream says so; of others only the driver knows.
[[gnu::noinline]] bool is_named_still(Contexts& contexts, const StreamUse& use) {
  KnownStream known;
  if (contexts.known_streams().find(use.stream.handle, &known) && known.id == use.stream.id) return true;
  StreamIdentity named;
  return identify_stream(contexts.api(), use.stream.handle, &named) == CUDA_SUCCESS && named.id == use.stream.id;
}

}  // namespace

bool names_its_stream(Contexts& contexts, const StreamUse& use) {
  const bool is_kept = use.owner != nullptr && use.stream.handle != per_thread_handle();
  return is_kept || use.stream.id == kLegacyStreamId || is_named_still(contexts, use);
}

bool is_captured_now(const DriverApi& api, const StreamIdentity& stream) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = api.stream_is_capturing(stream.handle, &status);
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

namespace {

// `event`: one to record, taken from the pool if there is none.
[[gnu::always_inline]] inline CUresult record(const DriverApi& api, EventPools& pools, const StreamUse& use,
                                              CUevent* event) {
  if (is_captured_now(api, use.stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const CUresult result = *event != nullptr ? CUDA_SUCCESS : pools.of(use.device).acquire(event);
  return result == CUDA_SUCCESS ? api.event_record(*event, use.stream.handle) : result;
}

// With the stream's context current. As record_guard, but what is not recorded stays an event to record.
[[gnu::noinline]] CUresult record_in_context(Contexts& contexts, EventPools& pools, const StreamUse& use,
                                             bool during_capture, bool may_wait, CUevent* event, bool* is_recorded) {
  const DriverApi& api = contexts.api();
  const DriverScope scope(api, contexts.primary(use.device), during_capture);
  if (!names_its_stream(contexts, use)) return may_wait ? api.ctx_synchronize() : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const CUresult result = record(api, pools, use, event);
  *is_recorded = result == CUDA_SUCCESS;
  return result;
}

}  // namespace

CUresult record_guard(Contexts& contexts, EventPools& pools, const StreamUse& use, bool during_capture, bool may_wait,
                      CUevent* event) noexcept {
  const DriverApi& api = contexts.api();
  CUresult result = CUDA_ERROR_INVALID_CONTEXT;
  bool is_recorded = false;
  try {
    // An event that is there and a stream that names its context need no other to be current, unless the driver says
    // so; and none of these calls disturbs a capture.
    if (*event != nullptr && names_its_context(use.stream) && names_its_stream(contexts, use)) {
      result = record(api, pools, use, event);
      if (result == CUDA_SUCCESS) [[likely]]
        return result;
    }
    if (result == CUDA_ERROR_INVALID_CONTEXT)
      result = record_in_context(contexts, pools, use, during_capture, may_wait, event, &is_recorded);
  } catch (...) {  // the context could not be made current
    result = CUDA_ERROR_INVALID_CONTEXT;
  }
  if (!is_recorded && *event != nullptr) pools.of(use.device).release(std::exchange(*event, nullptr));
  return result;
}

}  // namespace cistern
