// Copies that name their direction.

#include "check.h"

enum { kBytes = 1 << 16 };

void copies(void) {
  CUstream stream = NULL;
  unsigned char *source = NULL, *result = NULL;
  use_device(0);
  const CUdeviceptr first = device_memory(kBytes), second = device_memory(kBytes);
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemAllocHost((void**)&source, kBytes));
  OK(cuMemAllocHost((void**)&result, kBytes));
  for (int i = 0; i < kBytes; ++i) source[i] = (unsigned char)(i * 7);
  OK(cuMemcpyHtoDAsync(first, source, kBytes, stream));
  OK(cuMemcpyDtoDAsync(second, first, kBytes, stream));
  OK(cuMemcpyDtoHAsync(result, second, kBytes, stream));
  OK(cuStreamSynchronize(stream));
  CHECK(memcmp(source, result, kBytes) == 0);
  // A length of 0 does nothing, whatever the addresses; a null address is an error otherwise.
  OK(cuMemcpyHtoD(first, NULL, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(first, NULL, 16));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(0, source, 16, stream));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(second, first, 2 * kBytes + (4 << 20)));
  FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemcpyDtoHAsync(result, second, 16, (CUstream)source));
  CUcontext here = NULL, there = NULL;
  OK(cuCtxGetCurrent(&here));
  there = use_device(1);
  const CUdeviceptr other = device_memory(kBytes);
  OK(cuMemcpyPeer(other, there, second, here, kBytes));
  OK(cuCtxSynchronize());
  memset(result, 0, kBytes);
  OK(cuMemcpyDtoH(result, other, kBytes));
  CHECK(memcmp(source, result, kBytes) == 0);
  FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyPeer(other, NULL, second, here, kBytes));
}

// From and to memory that the driver does not know: done when the call returns.
void pageable(void) {
  static unsigned char source[kBytes], result[kBytes], plain[16];
  use_device(0);
  const CUdeviceptr memory_here = device_memory(kBytes), copy = device_memory(kBytes);
  memset(source, 42, kBytes);
  OK(cuMemcpyHtoD(memory_here, source, kBytes));
  memset(source, 0, kBytes);
  OK(cuMemcpyDtoD(copy, memory_here, kBytes));
  OK(cuMemcpyDtoH(result, copy, kBytes));
  CHECK(result[0] == 42 && result[kBytes - 1] == 42);
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD((CUdeviceptr)(size_t)plain, source, sizeof plain));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(result, (CUdeviceptr)(size_t)plain, sizeof plain));
  OK(cuMemcpy((CUdeviceptr)(size_t)plain, copy, sizeof plain));
  OK(cuStreamSynchronize(NULL));
  CHECK(plain[15] == 42);
}
