// Memory with a pitch, page-locked memory without flags, and attributes of addresses by the list. "CUDA
// Driver API", "Memory Management" and "Unified Addressing".

#include <cstring>

#include "runtime/simulated/granule.h"
#include "runtime/simulated/libcuda/program_calls.h"

namespace cistern::simulated {
namespace {

// Rows begin where textures may (CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT).
constexpr std::size_t kPitchAlignment = 512;

// The bytes of an attribute's value; 0: there is no such attribute.
std::size_t value_bytes(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return sizeof(int);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS);
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return sizeof(std::uint64_t);
    default:
      return 0;
  }
}

}  // namespace

CUresult mem_alloc_pitch(const Call& call, CUdeviceptr* pointer, std::size_t* pitch, std::size_t width,
                         std::size_t height, unsigned element_bytes) {
  if (pointer == nullptr || pitch == nullptr || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) return CUDA_ERROR_INVALID_VALUE;
  if (width > ~std::size_t{0} - kPitchAlignment) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t row = round_up(width, kPitchAlignment);
  if (row > ~std::size_t{0} / height) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = call.api.mem_alloc(pointer, row * height);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

CUresult mem_alloc_host(const Call& call, void** pointer, std::size_t bytes) {
  return call.api.mem_host_alloc(pointer, bytes, 0);
}

// "Unlike cuPointerGetAttribute, this function will not return an error when the ptr encountered is not
// a valid CUDA pointer. Instead, the attributes are assigned default NULL values."
CUresult pointer_get_attributes(const Call& call, unsigned count, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr pointer) {
  if (count == 0 || attributes == nullptr || values == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i)
    if (values[i] == nullptr || value_bytes(attributes[i]) == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const CUresult result = call.api.pointer_get_attribute(values[i], attributes[i], pointer);
    if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED) {
      std::memset(values[i], 0, value_bytes(attributes[i]));
    } else if (result != CUDA_SUCCESS) {
      return result;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace cistern::simulated
