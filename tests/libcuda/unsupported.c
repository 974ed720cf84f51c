// There is no device code, nor advice on managed memory, nor a context but the primary ones: the calls are there, so
// that programs start, and say so.

#include "check.h"

void unsupported(void) {
  CUmodule module = NULL;
  CUfunction function = NULL;
  CUdeviceptr pointer = 0;
  CUdriverProcAddressQueryResult status;
  CUresult (*create)(CUcontext*, unsigned, CUdevice) = NULL;
  CUcontext context = NULL;
  use_device(0);
  FAILS(CUDA_ERROR_NOT_SUPPORTED, cuModuleLoad(&module, "kernels.cubin"));
  FAILS(CUDA_ERROR_NOT_SUPPORTED, cuModuleLoadData(&module, "code"));
  FAILS(CUDA_ERROR_NOT_SUPPORTED, cuModuleGetFunction(&function, module, "kernel"));
  FAILS(CUDA_ERROR_NOT_SUPPORTED, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  OK(cuMemAllocManaged(&pointer, 4096, CU_MEM_ATTACH_GLOBAL));
  memset((void*)pointer, 1, 4096);
  OK(cuMemFree(pointer));
  pointer = 0;
  OK(cuGetProcAddress("cuCtxCreate", (void**)&create, 3020, 0, &status));
  FAILS(CUDA_ERROR_NOT_SUPPORTED, create(&context, 0, 0));
  CHECK(module == NULL && function == NULL && pointer == 0 && context == NULL);
}
