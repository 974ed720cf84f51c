// Streams and events, and what is true before cuInit.

#include "check.h"

#include <cudaProfiler.h>

void start(void) {
  int version = 0, count = 0;
  const char* text = NULL;
  CUcontext context = NULL;
  CUstream stream = NULL;
  OK(cuDriverGetVersion(&version));
  CHECK(version >= 12000);
  OK(cuGetErrorString(CUDA_ERROR_NOT_SUPPORTED, &text));
  CHECK(strcmp(text, "operation not supported") == 0);
  FAILS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
  FAILS(CUDA_ERROR_NOT_INITIALIZED, cuStreamCreate(&stream, 0));
  FAILS(CUDA_ERROR_NOT_INITIALIZED, cuCtxPushCurrent(NULL));
  FAILS(CUDA_ERROR_NOT_INITIALIZED, cuCtxPopCurrent(&context));
  FAILS(CUDA_ERROR_NOT_INITIALIZED, cuModuleLoad((CUmodule*)&context, "kernels.cubin"));
  FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMemcpyHtoD((CUdeviceptr)(size_t)&count, &version, sizeof count));
  OK(cuInit(0));
  OK(cuDeviceGetCount(&count));
  CHECK(count == 2);
  FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&stream, 0));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, cuProfilerStart());
  use_device(0);
  OK(cuProfilerStart());
  OK(cuProfilerStop());
}

static void CUDA_CB count_one(void* counter) { ++*(int*)counter; }

void streams(void) {
  CUstream stream = NULL, urgent = NULL;
  unsigned flags = 7;
  int priority = 1, least = 0, greatest = 0, calls = 0, default_calls = 0;
  use_device(0);
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamGetFlags(stream, &flags));
  CHECK(flags == CU_STREAM_NON_BLOCKING);
  OK(cuStreamGetPriority(stream, &priority));
  CHECK(priority == 0);
  FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&urgent, 64));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(NULL, 0));
  OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  CHECK(least == 0 && greatest < 0);
  OK(cuStreamCreateWithPriority(&urgent, CU_STREAM_DEFAULT, greatest));
  OK(cuLaunchHostFunc(stream, count_one, &calls));
  OK(cuLaunchHostFunc(NULL, count_one, &default_calls));
  OK(cuStreamSynchronize(stream));
  OK(cuStreamSynchronize(NULL));
  CHECK(calls == 1 && default_calls == 1);
  OK(cuStreamDestroy(stream));
  OK(cuStreamDestroy(urgent));
  FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
}

void events(void) {
  CUevent begin = NULL, end = NULL, untimed = NULL;
  float milliseconds = -1;
  use_device(0);
  OK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, begin, end));
  OK(cuEventRecord(begin, NULL));
  OK(cuEventRecord(end, NULL));
  OK(cuEventSynchronize(end));
  OK(cuEventElapsedTime(&milliseconds, begin, end));
  CHECK(milliseconds == 0);
  FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, begin, untimed));
  OK(cuEventDestroy(begin));
}
