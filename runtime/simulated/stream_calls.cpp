// Entries about streams.

#include "runtime/simulated/driver_state.h"
#include "runtime/simulated/thread_numbers.h"

namespace cistern::simulated {

CUresult DriverState::stream_create_with_priority(CUstream* handle, unsigned flags, int priority) {
  if (handle == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  *handle = streams.create(index, flags, priority);
  return CUDA_SUCCESS;
}

CUresult DriverState::stream_destroy(CUstream handle) {
  if (Streams::is_default(handle)) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Graph> dropped;  // let go of with no lock held
  const std::lock_guard lock(mutex);
  StreamQueue* stream = streams.find(handle, -1);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const int index = stream->device;
  if (races) races->stream_destroyed(*stream);
  dropped = leave_capture(*stream);
  streams.destroy(*stream);
  return context_status(index);  // an earlier, asynchronous failure
}

CUresult DriverState::stream_query(CUstream handle) {
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  if (const CUresult refused = captures.check_query(*stream, this_thread_number()); refused != CUDA_SUCCESS)
    return refused;
  if (!executor.is_idle(*stream)) return CUDA_ERROR_NOT_READY;
  if (races) races->host_waited_for(*stream);
  executor.observe(*stream);
  return CUDA_SUCCESS;
}

CUresult DriverState::stream_synchronize(CUstream handle) {
  Lock lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  if (const CUresult refused = captures.check_query(*stream, this_thread_number()); refused != CUDA_SUCCESS)
    return refused;
  return wait_for_stream(lock, *stream);
}

CUresult DriverState::stream_wait_event(CUstream handle, CUevent event_handle, unsigned flags) {
  if ((flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  Event* event = nullptr;
  if (const CUresult refused = find_event(event_handle, &event); refused != CUDA_SUCCESS) return refused;
  return submit_wait(*stream, event_handle, *event, (flags & CU_EVENT_WAIT_EXTERNAL) != 0);
}

CUresult DriverState::stream_get_priority(CUstream handle, int* priority) {
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

CUresult DriverState::stream_get_flags(CUstream handle, unsigned* flags) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

CUresult DriverState::stream_get_ctx(CUstream handle, CUcontext* context) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  *context = context_of(stream->device);
  return CUDA_SUCCESS;
}

CUresult DriverState::stream_get_id(CUstream handle, unsigned long long* id) {
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  *id = stream->id;
  return CUDA_SUCCESS;
}

CUresult DriverState::launch_host_func(CUstream handle, CUhostFn function, void* user_data) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  const auto call = [function, user_data](CUresult) {
    function(user_data);
    return CUDA_SUCCESS;
  };
  return submit(*stream, {.label = {OperationKind::host_function}, .function = call});
}

// A callback runs on a device that has failed, too, and is told of it: cuStreamAddCallback.
CUresult DriverState::stream_add_callback(CUstream handle, CUstreamCallback callback, void* user_data, unsigned flags) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  const auto call = [handle, callback, user_data](CUresult status) {
    callback(handle, status, user_data);
    return CUDA_SUCCESS;
  };
  return submit(*stream, {.label = {OperationKind::callback}, .function = call, .runs_after_failure = true});
}

}  // namespace cistern::simulated
