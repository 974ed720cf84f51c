// Fills without a stream, and of rows. "CUDA Driver API", "Memory Management", cuMemsetD8 and its kin.

#include "runtime/simulated/libcuda/program_calls.h"

namespace cistern::simulated {
namespace {

// A fill is asynchronous, unless it fills host memory ("API synchronization behavior", "Memset").
CUresult finish(const Call& call, CUresult queued, CUdeviceptr destination, std::size_t count) {
  if (queued != CUDA_SUCCESS || count == 0) return queued;
  {
    const std::lock_guard lock(call.state.mutex);
    if (call.state.is_device_address(destination)) return CUDA_SUCCESS;
  }
  return call.api.stream_synchronize(call.default_stream);
}

CUresult fill_rows(const Call& call, CUdeviceptr destination, std::size_t pitch, unsigned value,
                   std::size_t value_bytes, std::size_t width, std::size_t height, CUstream stream) {
  if (const CUresult refused = call.state.admit(DriverEntryId::memset_d8_async); refused != CUDA_SUCCESS)
    return refused;
  const WideSize row = WideSize{width} * value_bytes;
  // The pitch keeps rows apart, and values aligned.
  if (destination % value_bytes != 0 || (height > 1 && (pitch % value_bytes != 0 || pitch < row)))
    return CUDA_ERROR_INVALID_VALUE;
  if (height != 0 && WideSize{destination} + WideSize{pitch} * (height - 1) + row > ~std::uint64_t{0})
    return CUDA_ERROR_INVALID_VALUE;
  return call.state.fill_rows({{destination, pitch, 0}, value, value_bytes, width, height}, stream);
}

}  // namespace

CUresult memset_d8(const Call& call, CUdeviceptr destination, unsigned char value, std::size_t count) {
  return finish(call, call.api.memset_d8_async(destination, value, count, call.default_stream), destination, count);
}
CUresult memset_d16(const Call& call, CUdeviceptr destination, unsigned short value, std::size_t count) {
  return finish(call, call.api.memset_d16_async(destination, value, count, call.default_stream), destination, count);
}
CUresult memset_d32(const Call& call, CUdeviceptr destination, unsigned value, std::size_t count) {
  return finish(call, call.api.memset_d32_async(destination, value, count, call.default_stream), destination, count);
}

CUresult memset_2d_d8_async(const Call& call, CUdeviceptr destination, std::size_t pitch, unsigned char value,
                            std::size_t width, std::size_t height, CUstream stream) {
  return fill_rows(call, destination, pitch, value, 1, width, height, stream);
}
CUresult memset_2d_d16_async(const Call& call, CUdeviceptr destination, std::size_t pitch, unsigned short value,
                             std::size_t width, std::size_t height, CUstream stream) {
  return fill_rows(call, destination, pitch, value, 2, width, height, stream);
}
CUresult memset_2d_d32_async(const Call& call, CUdeviceptr destination, std::size_t pitch, unsigned value,
                             std::size_t width, std::size_t height, CUstream stream) {
  return fill_rows(call, destination, pitch, value, 4, width, height, stream);
}

CUresult memset_2d_d8(const Call& call, CUdeviceptr destination, std::size_t pitch, unsigned char value,
                      std::size_t width, std::size_t height) {
  const CUresult queued = fill_rows(call, destination, pitch, value, 1, width, height, call.default_stream);
  return finish(call, queued, destination, width);
}
CUresult memset_2d_d16(const Call& call, CUdeviceptr destination, std::size_t pitch, unsigned short value,
                       std::size_t width, std::size_t height) {
  const CUresult queued = fill_rows(call, destination, pitch, value, 2, width, height, call.default_stream);
  return finish(call, queued, destination, width);
}
CUresult memset_2d_d32(const Call& call, CUdeviceptr destination, std::size_t pitch, unsigned value, std::size_t width,
                       std::size_t height) {
  const CUresult queued = fill_rows(call, destination, pitch, value, 4, width, height, call.default_stream);
  return finish(call, queued, destination, width);
}

}  // namespace cistern::simulated
