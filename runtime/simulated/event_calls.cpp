// Entries about events.

#include <chrono>

#include "runtime/simulated/driver_state.h"
#include "runtime/simulated/shared_event.h"

namespace cistern::simulated {

CUresult DriverState::event_create(CUevent* handle, unsigned flags) {
  constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  const bool timed_interprocess = (flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0;
  if (handle == nullptr || (flags & ~known) != 0 || timed_interprocess) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  Event* event = nullptr;
  *handle = reinterpret_cast<CUevent>(events.insert(&event));
  event->device = index;
  event->flags = flags;
  return CUDA_SUCCESS;
}

CUresult DriverState::event_destroy(CUevent handle) {
  const std::lock_guard lock(mutex);
  Event* event = events.find(reinterpret_cast<std::uint64_t>(handle));
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const int index = event->device;
  Executor::forget(*event);
  if (races) races->event_destroyed(*event);
  ipc.withdraw(*event);
  events.erase(reinterpret_cast<std::uint64_t>(handle));
  return context_status(index);  // an earlier, asynchronous failure
}

CUresult DriverState::event_record(CUevent handle, CUstream stream_handle) {
  return event_record_with_flags(handle, stream_handle, CU_EVENT_RECORD_DEFAULT);
}

CUresult DriverState::event_record_with_flags(CUevent handle, CUstream stream_handle, unsigned flags) {
  if ((flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  Event* event = nullptr;
  if (const CUresult refused = find_event(handle, &event); refused != CUDA_SUCCESS) return refused;
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(stream_handle, &stream); refused != CUDA_SUCCESS) return refused;
  if (event->device != stream->device) return CUDA_ERROR_INVALID_HANDLE;
  return submit_record(*stream, handle, *event, (flags & CU_EVENT_RECORD_EXTERNAL) != 0);
}

CUresult DriverState::event_query(CUevent handle) {
  const std::lock_guard lock(mutex);
  Event* event = nullptr;
  if (const CUresult refused = find_event(handle, &event); refused != CUDA_SUCCESS) return refused;
  if (const CUresult refused = check_event_query(*event); refused != CUDA_SUCCESS) return refused;
  if (!executor.is_complete(*event)) return CUDA_ERROR_NOT_READY;
  if (races) races->host_waited_for(*event);
  executor.observe(*event);
  return CUDA_SUCCESS;
}

CUresult DriverState::event_synchronize(CUevent handle) {
  Lock lock(mutex);
  Event* event = nullptr;
  if (const CUresult refused = find_event(handle, &event); refused != CUDA_SUCCESS) return refused;
  if (const CUresult refused = check_event_query(*event); refused != CUDA_SUCCESS) return refused;
  const int index = event->device;  // the event may be destroyed while this thread waits
  if (!executor.is_complete(*event)) meter.count_host_synchronization();
  if (races) races->host_waited_for(*event);
  executor.observe(*event);
  if (const std::uint64_t foreign = event->shared ? event->shared->latest_foreign() : 0; foreign != 0) {
    const std::shared_ptr<SharedEvent> shared = event->shared;
    lock.unlock();
    shared->wait(foreign);
    lock.lock();
    return executor.device(index).failure;
  }
  executor.finish(lock, executor.targets(*event));
  executor.complete_lagging_records(index);
  pools.host_waited();
  return executor.device(index).failure;
}

CUresult DriverState::event_elapsed_time(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  Event* start = nullptr;
  Event* end = nullptr;
  if (const CUresult refused = find_event(start_handle, &start); refused != CUDA_SUCCESS) return refused;
  if (const CUresult refused = find_event(end_handle, &end); refused != CUDA_SUCCESS) return refused;
  const auto has_time = [](const Event& event) {
    return event.recorded && (event.flags & CU_EVENT_DISABLE_TIMING) == 0;
  };
  for (const Event* event : {start, end}) {
    if (const CUresult refused = Captures::check_event(*event); refused != CUDA_SUCCESS) return refused;
  }
  if (!has_time(*start) || !has_time(*end) || start->device != end->device) return CUDA_ERROR_INVALID_HANDLE;
  if (!executor.is_complete(*start) || !executor.is_complete(*end)) return CUDA_ERROR_NOT_READY;
  for (const Event* event : {start, end}) {
    if (races) races->host_waited_for(*event);
    executor.observe(*event);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return CUDA_SUCCESS;
}

}  // namespace cistern::simulated
