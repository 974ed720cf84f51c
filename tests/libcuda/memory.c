// Memory with a pitch, page-locked memory, and what addresses say of themselves.

#include "check.h"

void memory(void) {
  CUdeviceptr pointer = 1, host_address = 0;
  size_t pitch = 0;
  unsigned flags = 7;
  void* host = NULL;
  use_device(0);
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&pointer, &pitch, 100, 10, 3));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&pointer, &pitch, 0, 10, 4));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&pointer, &pitch, ~(size_t)0, 10, 4));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&pointer, &pitch, (size_t)1 << 40, (size_t)1 << 40, 4));
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch(&pointer, &pitch, (size_t)1 << 20, 2048, 4));
  CHECK(pitch == 0);
  OK(cuMemAllocPitch(&pointer, &pitch, 1000, 10, 16));
  CHECK(pitch == 1024);
  OK(cuMemFree(pointer));
  OK(cuMemAllocHost(&host, 4096));
  OK(cuMemHostGetFlags(&flags, host));
  CHECK(flags == 0);
  OK(cuMemHostGetDevicePointer(&host_address, host, 0));
  OK(cuMemFreeHost(host));
}

void attributes(void) {
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_HOST_POINTER};
  unsigned type = 9;
  int ordinal = 9;
  CUdeviceptr begin = 9;
  void* host = &begin;
  void* values[] = {&type, &ordinal, &begin, &host};
  use_device(1);
  const CUdeviceptr pointer = device_memory(4096);
  OK(cuPointerGetAttributes(4, asked, values, pointer + 100));
  CHECK(type == CU_MEMORYTYPE_DEVICE && ordinal == 1 && begin == pointer);
  CHECK(host == NULL);  // it has none, which is no error here
  OK(cuPointerGetAttributes(4, asked, values, (CUdeviceptr)(size_t)values));
  CHECK(type == 0 && begin == 0);  // memory that the driver does not know
  FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(0, asked, values, pointer));
  type = 9;
  asked[3] = (CUpointer_attribute)999;
  FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(4, asked, values, pointer));
  CHECK(type == 9);
}
