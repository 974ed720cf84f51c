// The stack of contexts, and what they say of themselves.

#include "check.h"

void contexts(void) {
  CUcontext first = NULL, second = NULL, found = NULL;
  CUdevice device = -1;
  unsigned flags = 7, version = 0;
  int active = -1;
  OK(cuInit(0));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent(&found));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent(NULL));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetFlags(&flags));
  OK(cuDevicePrimaryCtxRetain(&first, 0));
  OK(cuDevicePrimaryCtxRetain(&second, 1));
  OK(cuCtxPushCurrent(first));
  OK(cuCtxPushCurrent(second));
  OK(cuCtxGetDevice(&device));
  CHECK(device == 1);
  OK(cuCtxSetCurrent(first));  // in the place of the second
  OK(cuCtxPopCurrent(&found));
  CHECK(found == first);
  OK(cuCtxGetCurrent(&found));
  CHECK(found == first);  // the one that was pushed first
  OK(cuCtxPushCurrent(second));
  OK(cuCtxSetCurrent(NULL));  // pops
  OK(cuCtxGetDevice(&device));
  CHECK(device == 0);
  OK(cuCtxGetApiVersion(first, &version));
  CHECK(version >= 3010);
  OK(cuCtxGetFlags(&flags));
  CHECK(flags == 0);
  OK(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_YIELD));
  OK(cuCtxGetFlags(&flags));
  CHECK(flags == CU_CTX_SCHED_YIELD);
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  CHECK(flags == CU_CTX_SCHED_YIELD && active == 1);
  FAILS(CUDA_ERROR_INVALID_VALUE, cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_YIELD | CU_CTX_SCHED_SPIN));
  FAILS(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxSetFlags(2, 0));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetApiVersion((CUcontext)&version, &version));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(first));  // it is released instead
  OK(cuCtxPopCurrent(NULL));
  OK(cuCtxGetCurrent(&found));
  CHECK(found == NULL);
}

void limits(void) {
  size_t bytes = 0;
  CUfunc_cache config = CU_FUNC_CACHE_PREFER_L1;
  OK(cuInit(0));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE));
  use_device(0);
  OK(cuCtxGetLimit(&bytes, CU_LIMIT_MALLOC_HEAP_SIZE));
  CHECK(bytes == 8u << 20);
  OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
  OK(cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE));
  CHECK(bytes == 4096);
  FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxGetLimit(NULL, CU_LIMIT_STACK_SIZE));
  FAILS(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxGetLimit(&bytes, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH));
  FAILS(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxSetLimit((CUlimit)77, 1));
  OK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_SHARED));
  OK(cuCtxGetCacheConfig(&config));
  CHECK(config == CU_FUNC_CACHE_PREFER_NONE);
}
