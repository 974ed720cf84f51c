// Entries that copy and fill memory. "CUDA Driver API", "API synchronization behavior": what a
// call waits for, and when it reads the host's memory.

#include <cstring>
#include <utility>

#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {

CUresult DriverState::check_copy(const StreamQueue& stream, const Copy& copy) {
  if (copy.destination == 0 || copy.source == 0) return CUDA_ERROR_INVALID_VALUE;
  if (may_touch(copy.writes(), Moment::call) && may_touch(copy.reads(), Moment::call)) return CUDA_SUCCESS;
  tell_refused(stream, {OperationKind::copy}, copy.accesses());
  return CUDA_ERROR_INVALID_VALUE;
}

bool DriverState::is_between_hosts(const Copy& copy) const {
  return !is_device_address(copy.destination) && !is_device_address(copy.source);
}

// Pageable memory on its way to a device is staged: read before the call returns.
void DriverState::stage_pageable(Copy& copy) {
  if (options.backing == Backing::none || is_between_hosts(copy) || !is_pageable(copy.source, copy.bytes)) return;
  if (races) races->host_access({{copy.source, copy.bytes, false}});
  const auto* bytes = reinterpret_cast<const std::byte*>(copy.source);
  copy.staged = std::make_shared<const std::vector<std::byte>>(bytes, bytes + copy.bytes);
}

CUresult DriverState::wait_for_stream(Lock& lock, StreamQueue& stream) {
  const int index = stream.device;  // the stream may be destroyed while this thread waits
  if (!executor.is_idle(stream) || executor.has_lagging_records(stream)) meter.count_host_synchronization();
  if (races) races->host_waited_for(stream);
  executor.observe(stream);
  executor.finish(lock, executor.targets(stream));
  executor.complete_lagging_records(index);
  pools.host_waited();
  return executor.device(index).failure;
}

// On the legacy default stream of the current device.
CUresult DriverState::memcpy(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes) {
  Lock lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(CU_STREAM_LEGACY, &stream); refused != CUDA_SUCCESS) return refused;
  if (bytes == 0) return CUDA_SUCCESS;
  Copy copy{destination, source, bytes, stream->device, stream->device};
  if (const CUresult invalid = check_copy(*stream, copy); invalid != CUDA_SUCCESS) return invalid;
  const bool to_device = is_device_address(destination);
  const bool from_device = is_device_address(source);
  if (to_device && is_pageable(source, bytes)) {
    // The stream is waited for before, the copy's end is not.
    if (const CUresult failed = wait_for_stream(lock, *stream); failed != CUDA_SUCCESS) return failed;
    stage_pageable(copy);
    return submit(*stream, work_of(std::move(copy)));
  }
  const CUresult refused = submit(*stream, work_of(std::move(copy)));
  if (refused != CUDA_SUCCESS || (to_device && from_device)) return refused;
  return wait_for_stream(lock, *stream);
}

CUresult DriverState::memcpy_async(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes, CUstream handle) {
  Lock lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  if (bytes == 0) return CUDA_SUCCESS;
  Copy copy{destination, source, bytes, stream->device, stream->device};
  if (const CUresult invalid = check_copy(*stream, copy); invalid != CUDA_SUCCESS) return invalid;
  // A node of a graph reads its source at each launch, and nothing waits for it now.
  const bool is_captured = stream->capture != nullptr;
  if (!is_captured) stage_pageable(copy);
  const bool waits = !is_captured && is_between_hosts(copy);
  const CUresult refused = submit(*stream, work_of(std::move(copy)));
  return refused == CUDA_SUCCESS && waits ? wait_for_stream(lock, *stream) : refused;
}

// Each side is memory of the device that its context names. Peer access is not asked for.
CUresult DriverState::memcpy_peer_async(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                                        CUcontext source_context, std::size_t bytes, CUstream handle) {
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  const int destination_device = device_of(destination_context);
  const int source_device = device_of(source_context);
  if (destination_device < 0 || source_device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0) return CUDA_SUCCESS;
  const Copy copy{destination, source, bytes, destination_device, source_device};
  if (const CUresult invalid = check_copy(*stream, copy); invalid != CUDA_SUCCESS) return invalid;
  if (device_of_memory(destination) != destination_device || device_of_memory(source) != source_device) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return submit(*stream, work_of(copy));
}

CUresult DriverState::memset_async(CUdeviceptr destination, unsigned value, std::size_t width, std::size_t count,
                                   CUstream handle) {
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  if (destination % width != 0 || count > ~std::size_t{0} / width) return CUDA_ERROR_INVALID_VALUE;
  if (count == 0) return CUDA_SUCCESS;
  const Fill fill{destination, value, width, count, stream->device};
  if (!may_touch(fill.writes(), Moment::call) || is_pageable(destination, fill.bytes())) {
    tell_refused(*stream, {OperationKind::fill}, {{destination, fill.bytes(), true}});
    return CUDA_ERROR_INVALID_VALUE;
  }
  return submit(*stream, work_of(fill));
}

CUresult DriverState::memset_d8_async(CUdeviceptr destination, unsigned char value, std::size_t bytes,
                                      CUstream stream) {
  return memset_async(destination, value, 1, bytes, stream);
}

CUresult DriverState::memset_d16_async(CUdeviceptr destination, unsigned short value, std::size_t count,
                                       CUstream stream) {
  return memset_async(destination, value, 2, count, stream);
}

CUresult DriverState::memset_d32_async(CUdeviceptr destination, unsigned value, std::size_t count, CUstream stream) {
  return memset_async(destination, value, 4, count, stream);
}

}  // namespace cistern::simulated
