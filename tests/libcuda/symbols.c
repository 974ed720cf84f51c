// cuGetProcAddress: by name, version, and default stream.

#include "check.h"

static void* find(const char* symbol, int version, cuuint64_t flags, CUdriverProcAddressQueryResult expected) {
  void* function = &function;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  OK(cuGetProcAddress(symbol, &function, version, flags, &status));
  if (status != expected) fprintf(stderr, "%s of version %d:\n", symbol, version);
  CHECK(status == expected);
  return function;
}

void symbols(void) {
  const CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
  const cuuint64_t plain = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const char* names[] = {"cuStreamCreate",  "cuMemcpyHtoD",        "cuMemcpyDtoHAsync",      "cuMemcpy2D",
                         "cuMemcpy3DAsync", "cuMemsetD2D32",       "cuCtxPushCurrent",       "cuCtxGetLimit",
                         "cuMemAllocPitch", "cuDeviceGetPCIBusId", "cuPointerGetAttributes", "cuProfilerStart",
                         "cuLaunchKernel",  "cuModuleLoadData",    "cuCtxDestroy",           "cuEventElapsedTime"};
  use_device(0);
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) CHECK(find(names[i], 12080, 0, found) != NULL);
  CHECK(find("cuMemcpyHtoD", 2000, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT) == NULL);
  CHECK(find("cuMemcpyHtoD", 12000, plain, found) == find("cuMemcpyHtoD", 3020, plain, found));
  CHECK(find("cuNoSuchCall", 12000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) == NULL);
  // Another ABI from 11.4 and 12.5 on; another function from 12.8 on.
  CHECK(find("cuCtxCreate", 11030, 0, found) != find("cuCtxCreate", 11040, 0, found));
  CHECK(find("cuEventElapsedTime", 12000, 0, found) != NULL);
  // What takes a stream, or none but works on a default one, has a variant for the thread's own.
  CHECK(find("cuMemcpyHtoD", 12000, per_thread, found) != find("cuMemcpyHtoD", 12000, plain, found));
  CHECK(find("cuMemcpy2DAsync", 12000, per_thread, found) != find("cuMemcpy2DAsync", 12000, plain, found));
  CHECK(find("cuCtxPushCurrent", 12000, per_thread, found) == find("cuCtxPushCurrent", 12000, plain, found));
}
