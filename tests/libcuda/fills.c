// Fills, of rows too.

#include "check.h"

enum { kCount = 64 };

void fills(void) {
  static unsigned char bytes[4 * kCount];
  unsigned result[kCount];
  unsigned* locked = NULL;
  use_device(0);
  const CUdeviceptr memory_here = device_memory(4 * kCount);
  OK(cuMemsetD32(memory_here, 0x01020304u, kCount));
  OK(cuMemsetD16(memory_here + 4, 0x0506, 1));
  OK(cuMemsetD8(memory_here + 6, 7, 1));
  OK(cuMemcpyDtoH(result, memory_here, sizeof result));
  CHECK(result[0] == 0x01020304u && result[1] == 0x01070506u && result[kCount - 1] == 0x01020304u);
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(memory_here + 1, 0, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD16(memory_here + 1, 0, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8((CUdeviceptr)(size_t)bytes, 0, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(memory_here, 0, (size_t)1 << 40));
  // A fill of host memory is done when the call returns.
  OK(cuMemAllocHost((void**)&locked, 4 * kCount));
  OK(cuMemsetD32((CUdeviceptr)(size_t)locked, 3, kCount));
  CHECK(locked[0] == 3 && locked[kCount - 1] == 3);
}

void row_fills(void) {
  unsigned result[4][8];
  use_device(0);
  const CUdeviceptr memory_here = device_memory(sizeof result);
  CUstream stream = NULL;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemsetD8Async(memory_here, 0, sizeof result, stream));
  OK(cuMemsetD2D32Async(memory_here, sizeof result[0], 0x11111111u, 3, 4, stream));
  OK(cuMemsetD2D16Async(memory_here + 4, sizeof result[0], 0x2222, 2, 2, stream));
  OK(cuMemsetD2D8Async(memory_here + 8, sizeof result[0], 0x33, 4, 1, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH(result, memory_here, sizeof result));
  CHECK(result[0][0] == 0x11111111u && result[0][1] == 0x22222222u && result[0][2] == 0x33333333u && result[0][3] == 0);
  CHECK(result[1][1] == 0x22222222u && result[1][2] == 0x11111111u);
  CHECK(result[3][2] == 0x11111111u && result[3][3] == 0);
  OK(cuMemsetD2D8(memory_here, sizeof result[0], 1, sizeof result[0], 4));
  OK(cuMemsetD2D16(memory_here, sizeof result[0], 0x0202, 1, 4));
  OK(cuMemsetD2D32(memory_here + 28, sizeof result[0], 4, 1, 4));
  OK(cuMemcpyDtoH(result, memory_here, sizeof result));
  CHECK(result[3][0] == 0x01010202u && result[3][1] == 0x01010101u && result[3][7] == 4);
  // Rows that overlap, values that are not aligned, rows that are nobody's: nothing is filled.
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D32(memory_here, 8, 9, 3, 2));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D32(memory_here, 33, 9, 3, 2));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D16(memory_here + 1, 32, 9, 3, 2));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8(memory_here, 1 << 20, 9, 1, 1 << 12));
  OK(cuMemcpyDtoH(result, memory_here, sizeof result));
  CHECK(result[0][0] == 0x01010202u);
}
