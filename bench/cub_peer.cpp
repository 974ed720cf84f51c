// CUB's CachingDeviceAllocator, from the CUDA Toolkit, as a peer (peer.h): a library of its own,
// since it brings the CUDA runtime's names (cuda_runtime_shim.cpp). Bins by powers of two from 512 bytes,
// every size in one of them, and a cache without a limit, so that it always hits when it is warm.

#include <cub/util_allocator.cuh>

#include <cstddef>

#include "bench/cuda_runtime_shim.h"

namespace {

using Allocator = cub::CachingDeviceAllocator;

Allocator& allocator() {
  // Never destroyed: the simulated driver may be gone by then.
  static Allocator& made = *new Allocator(2, 9, Allocator::INVALID_BIN, Allocator::INVALID_SIZE, true);
  return made;
}

void* allocate(std::size_t bytes, cudaStream_t stream) {
  void* pointer = nullptr;
  return allocator().DeviceAllocate(&pointer, bytes, stream) == cudaSuccess ? pointer : nullptr;
}

}  // namespace

#define CISTERN_PEER_FUNCTION extern "C" __attribute__((visibility("default")))

CISTERN_PEER_FUNCTION void* cistern_cub_allocate(std::size_t bytes) { return allocate(bytes, nullptr); }
CISTERN_PEER_FUNCTION void* cistern_cub_allocate_on(std::size_t bytes, unsigned stream) {
  return allocate(bytes, cistern::shim_stream(stream));
}
CISTERN_PEER_FUNCTION void cistern_cub_release(void* pointer) { static_cast<void>(allocator().DeviceFree(pointer)); }
