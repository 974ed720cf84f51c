// Copies of rectangles and boxes. "CUDA Driver API", "Memory Management", cuMemcpy2D and cuMemcpy3D.

#include <limits>

#include "runtime/simulated/libcuda/program_calls.h"

namespace cistern::simulated {
namespace {

constexpr std::size_t kMaxPitch = 0x7fffffff;  // CU_DEVICE_ATTRIBUTE_MAX_PITCH

// One side of a descriptor.
struct Side {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  std::size_t x, y, z;
  std::size_t pitch, height;
  CUarray array;
};

bool fits(WideSize value) { return value <= std::numeric_limits<std::uint64_t>::max(); }

// Where the side's rows lie; CUDA_ERROR_INVALID_VALUE for a kind of memory that the address is not
// of, and for rows or slices that overlap.
CUresult find_rows(const Call& call, const Side& side, const RowCopy& copy, Rows* rows) {
  std::uint64_t base = side.device;
  if (side.type == CU_MEMORYTYPE_HOST) base = reinterpret_cast<std::uint64_t>(side.host);
  if (side.type == CU_MEMORYTYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;  // there are no arrays
  if (side.type != CU_MEMORYTYPE_HOST && side.type != CU_MEMORYTYPE_DEVICE && side.type != CU_MEMORYTYPE_UNIFIED)
    return CUDA_ERROR_INVALID_VALUE;
  const bool has_rows = copy.height > 1 || copy.depth > 1 || side.y != 0;
  const bool has_slices = copy.depth > 1 || side.z != 0;
  if (side.pitch > kMaxPitch || (has_rows && (side.pitch < side.x || side.pitch - side.x < copy.width)))
    return CUDA_ERROR_INVALID_VALUE;
  if (has_slices && (side.height < side.y || side.height - side.y < copy.height)) return CUDA_ERROR_INVALID_VALUE;
  if (!fits(WideSize{side.pitch} * side.height)) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t slice = side.pitch * side.height;
  const WideSize begin = WideSize{base} + WideSize{slice} * side.z + WideSize{side.pitch} * side.y + side.x;
  const WideSize end =
      begin + WideSize{slice} * (copy.depth - 1) + WideSize{side.pitch} * (copy.height - 1) + copy.width;
  if (base == 0 || !fits(end)) return CUDA_ERROR_INVALID_VALUE;
  *rows = {static_cast<std::uint64_t>(begin), side.pitch, slice};
  const std::lock_guard lock(call.state.mutex);
  const bool is_wrong_kind = side.type == CU_MEMORYTYPE_HOST     ? call.state.is_device_address(rows->address)
                             : side.type == CU_MEMORYTYPE_DEVICE ? call.state.is_pageable(rows->address, 1)
                                                                 : false;
  return is_wrong_kind ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// `stream`: null, and `is_synchronous`, for the calls without one.
CUresult copy_box(const Call& call, const Side& destination, const Side& source, RowCopy copy, CUstream stream,
                  bool is_synchronous) {
  const DriverEntryId entry = is_synchronous ? DriverEntryId::memcpy : DriverEntryId::memcpy_async;
  if (const CUresult refused = call.state.admit(entry); refused != CUDA_SUCCESS) return refused;
  if (copy.width != 0 && copy.height != 0 && copy.depth != 0) {
    if (const CUresult invalid = find_rows(call, destination, copy, &copy.destination); invalid != CUDA_SUCCESS)
      return invalid;
    if (const CUresult invalid = find_rows(call, source, copy, &copy.source); invalid != CUDA_SUCCESS) return invalid;
  }
  return call.state.copy_rows(copy, stream, is_synchronous);
}

CUresult copy_2d(const Call& call, const CUDA_MEMCPY2D* copy, CUstream stream, bool is_synchronous) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Side destination{
      copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstXInBytes, copy->dstY, 0, copy->dstPitch, 0,
      copy->dstArray};
  const Side source{
      copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcXInBytes, copy->srcY, 0, copy->srcPitch, 0,
      copy->srcArray};
  return copy_box(call, destination, source, {{}, {}, copy->WidthInBytes, copy->Height, 1}, stream, is_synchronous);
}

CUresult copy_3d(const Call& call, const CUDA_MEMCPY3D* copy, CUstream stream, bool is_synchronous) {
  if (copy == nullptr || copy->srcLOD != 0 || copy->dstLOD != 0 || copy->reserved0 != nullptr ||
      copy->reserved1 != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const Side destination{copy->dstMemoryType, copy->dstHost,  copy->dstDevice, copy->dstXInBytes, copy->dstY,
                         copy->dstZ,          copy->dstPitch, copy->dstHeight, copy->dstArray};
  const Side source{copy->srcMemoryType, copy->srcHost,  copy->srcDevice, copy->srcXInBytes, copy->srcY,
                    copy->srcZ,          copy->srcPitch, copy->srcHeight, copy->srcArray};
  return copy_box(call, destination, source, {{}, {}, copy->WidthInBytes, copy->Height, copy->Depth}, stream,
                  is_synchronous);
}

}  // namespace

CUresult memcpy_2d(const Call& call, const CUDA_MEMCPY2D* copy) {
  return copy_2d(call, copy, call.default_stream, true);
}

// What cuMemcpy2D may refuse on a device, for a pitch that the hardware does not like, it takes here.
CUresult memcpy_2d_unaligned(const Call& call, const CUDA_MEMCPY2D* copy) {
  return copy_2d(call, copy, call.default_stream, true);
}

CUresult memcpy_2d_async(const Call& call, const CUDA_MEMCPY2D* copy, CUstream stream) {
  return copy_2d(call, copy, stream, false);
}

CUresult memcpy_3d(const Call& call, const CUDA_MEMCPY3D* copy) {
  return copy_3d(call, copy, call.default_stream, true);
}

CUresult memcpy_3d_async(const Call& call, const CUDA_MEMCPY3D* copy, CUstream stream) {
  return copy_3d(call, copy, stream, false);
}

}  // namespace cistern::simulated
