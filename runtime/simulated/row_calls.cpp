// Copies and fills of rows, for the calls of libcuda.so.1 that take a pitch. "CUDA Driver API", "Memory
// Management": cuMemcpy2D, cuMemcpy3D, cuMemsetD2D8. One operation each, so one node of a graph.

#include <algorithm>
#include <utility>

#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {

CUresult DriverState::list_copies(const StreamQueue& stream, const RowCopy& rows, std::vector<Copy>* copies) {
  for (std::size_t z = 0; z < rows.depth; ++z) {
    for (std::size_t y = 0; y < rows.height; ++y) {
      const Copy copy{rows.destination.row(y, z), rows.source.row(y, z), rows.width, stream.device, stream.device};
      if (const CUresult invalid = check_copy(stream, copy); invalid != CUDA_SUCCESS) return invalid;
      if (copies->empty() || !extend(copies->back(), copy)) copies->push_back(copy);
    }
  }
  return CUDA_SUCCESS;
}

// Two allocations may be neighbours: then nothing may be copied across their border.
bool DriverState::extend(Copy& copy, const Copy& next) const {
  if (copy.destination + copy.bytes != next.destination || copy.source + copy.bytes != next.source) return false;
  Copy both = copy;
  both.bytes += next.bytes;
  if (!may_touch(both.writes(), Moment::call) || !may_touch(both.reads(), Moment::call)) return false;
  copy.bytes = both.bytes;
  return true;
}

Work DriverState::work_of(std::vector<Copy> copies) {
  if (copies.size() == 1) return work_of(std::move(copies.front()));
  Work work{.label = {OperationKind::copy, {}}};
  for (const Copy& copy : copies) {
    work.duration += duration_of(copy);
    const std::vector<MemoryAccess> accesses = copy.accesses();
    work.accesses.insert(work.accesses.end(), accesses.begin(), accesses.end());
  }
  const auto shared = std::make_shared<const std::vector<Copy>>(std::move(copies));
  work.is_valid = [this, shared] {
    return std::all_of(shared->begin(), shared->end(), [this](const Copy& copy) {
      return may_touch(copy.writes(), Moment::turn) && (copy.staged || may_touch(copy.reads(), Moment::turn));
    });
  };
  work.function = [this, shared](CUresult) {
    CUresult result = CUDA_SUCCESS;
    for (auto copy = shared->begin(); copy != shared->end() && result == CUDA_SUCCESS; ++copy) result = run_copy(*copy);
    return result;
  };
  return work;
}

// What is waited for is what DriverState::memcpy and memcpy_async wait for.
CUresult DriverState::copy_rows(const RowCopy& rows, CUstream handle, bool is_synchronous) {
  Lock lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  const bool is_captured = stream->capture != nullptr;
  if (is_synchronous && is_captured) return refuse_in_capture(*stream);
  if (rows.width == 0 || rows.height == 0 || rows.depth == 0) return CUDA_SUCCESS;
  std::vector<Copy> copies;
  if (const CUresult invalid = list_copies(*stream, rows, &copies); invalid != CUDA_SUCCESS) return invalid;
  const Copy& first = copies.front();
  const bool to_device = is_device_address(first.destination);
  const bool from_device = is_device_address(first.source);
  const bool is_staged = to_device && is_pageable(first.source, first.bytes);
  if (is_synchronous && is_staged)
    if (const CUresult failed = wait_for_stream(lock, *stream); failed != CUDA_SUCCESS) return failed;
  if (!is_captured) std::for_each(copies.begin(), copies.end(), [this](Copy& copy) { stage_pageable(copy); });
  const CUresult refused = submit(*stream, work_of(std::move(copies)));
  const bool waits =
      is_synchronous ? !is_staged && !(to_device && from_device) : !is_captured && !to_device && !from_device;
  return refused == CUDA_SUCCESS && waits ? wait_for_stream(lock, *stream) : refused;
}

CUresult DriverState::fill_rows(const RowFill& rows, CUstream handle) {
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  if (rows.count == 0 || rows.height == 0) return CUDA_SUCCESS;
  std::vector<Fill> fills;
  Work work{.label = {OperationKind::fill, {}}};
  for (std::size_t y = 0; y < rows.height; ++y) {
    const Fill fill{rows.destination.row(y, 0), rows.value, rows.value_bytes, rows.count, stream->device};
    if (!may_touch(fill.writes(), Moment::call) || is_pageable(fill.destination, fill.bytes())) {
      tell_refused(*stream, work.label, {{fill.destination, fill.bytes(), true}});
      return CUDA_ERROR_INVALID_VALUE;
    }
    work.accesses.push_back({fill.destination, fill.bytes(), true});
    work.duration += duration_in_device(fill.bytes());
    fills.push_back(fill);
  }
  const auto shared = std::make_shared<const std::vector<Fill>>(std::move(fills));
  work.is_valid = [this, shared] {
    return std::all_of(shared->begin(), shared->end(),
                       [this](const Fill& fill) { return may_touch(fill.writes(), Moment::turn); });
  };
  work.function = [this, shared](CUresult) {
    CUresult result = CUDA_SUCCESS;
    for (auto fill = shared->begin(); fill != shared->end() && result == CUDA_SUCCESS; ++fill) result = run_fill(*fill);
    return result;
  };
  return submit(*stream, std::move(work));
}

}  // namespace cistern::simulated
