// The driver, its devices, and what is current.

#include <thread>

#include "tests/conformance/driver_case.h"

namespace cistern::conformance {
namespace {

class ContextsAndErrors : public DriverCase {};

STATEMENT(C069, ContextsAndErrors, InitFlagsMustBeZero, "Driver API, Initialization, cuInit",
          "The flags of cuInit must be 0, and it may be called again.") {
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.init(1));
  EXPECT_OK(api.init(0));
}

STATEMENT(
    C070, ContextsAndErrors, TheVersionNeedsAPlace, "Driver API, Version Management, cuDriverGetVersion",
    "The version is 1000 times the major and 10 times the minor one; a null pointer is `CUDA_ERROR_INVALID_VALUE`.") {
  int version = 0;
  EXPECT_OK(api.driver_get_version(&version));
  EXPECT_GE(version, 12000);
  EXPECT_EQ(version % 10, 0);
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.driver_get_version(nullptr));
}

STATEMENT(C071, ContextsAndErrors, DevicesAreNumberedFromZero, "Driver API, Device Management, cuDeviceGet",
          "Ordinals run from 0 to the count less one; any other is `CUDA_ERROR_INVALID_DEVICE`.") {
  int count = 0;
  CUdevice came = -1;
  ASSERT_OK(api.device_get_count(&count));
  ASSERT_GE(count, 1);
  EXPECT_OK(api.device_get(&came, count - 1));
  EXPECT_RESULT(CUDA_ERROR_INVALID_DEVICE, api.device_get(&came, count));
  EXPECT_RESULT(CUDA_ERROR_INVALID_DEVICE, api.device_get(&came, -1));
}

STATEMENT(C072, ContextsAndErrors, ThePrimaryContextIsOne,
          "Driver API, Primary Context Management, cuDevicePrimaryCtxRetain",
          "Each retain of a device's primary context returns the same context and needs a release of its own.") {
  CUcontext again = nullptr;
  EXPECT_OK(api.primary_ctx_retain(&again, device));
  EXPECT_EQ(again, context);
  EXPECT_OK(api.primary_ctx_release(device));
  CUstream stream = nullptr;
  EXPECT_OK(api.stream_create_with_priority(&stream, 0, 0));
  EXPECT_OK(api.stream_destroy(stream));
}

STATEMENT(
    C073, ContextsAndErrors, ARetainedPrimaryContextIsActive,
    "Driver API, Primary Context Management, cuDevicePrimaryCtxGetState",
    "The state says whether a device's primary context is active; there is none of a device that does not exist.") {
  unsigned flags = 99;
  int active = 99;
  EXPECT_OK(api.primary_ctx_get_state(device, &flags, &active));
  EXPECT_EQ(active, 1);
  EXPECT_RESULT(CUDA_ERROR_INVALID_DEVICE, api.primary_ctx_get_state(1000, &flags, &active));
}

STATEMENT(C074, ContextsAndErrors, WhatIsCurrentBelongsToTheThread, "Driver API, Context Management, cuCtxSetCurrent",
          "The current context is the calling thread's own: another thread starts without one.") {
  std::thread([&] {
    CUcontext theirs = context;
    EXPECT_OK(api.ctx_get_current(&theirs));
    EXPECT_EQ(theirs, nullptr);
    EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, api.ctx_synchronize());
  }).join();
  CUcontext mine = nullptr;
  EXPECT_OK(api.ctx_get_current(&mine));
  EXPECT_EQ(mine, context);
}

STATEMENT(
    C075, ContextsAndErrors, NullUnbinds, "Driver API, Context Management, cuCtxSetCurrent",
    "Setting no context takes the current one off the thread; the device of none is `CUDA_ERROR_INVALID_CONTEXT`.") {
  CUdevice came = -1;
  EXPECT_OK(api.ctx_get_device(&came));
  EXPECT_EQ(came, device);
  EXPECT_OK(api.ctx_set_current(nullptr));
  CUcontext current = context;
  EXPECT_OK(api.ctx_get_current(&current));
  EXPECT_EQ(current, nullptr);
  EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, api.ctx_get_device(&came));
}

STATEMENT(C076, ContextsAndErrors, ErrorsHaveNamesAndWords, "Driver API, Error Handling, cuGetErrorName",
          "An error has a name and a description; an unknown code is `CUDA_ERROR_INVALID_VALUE` and gives null.") {
  const char* text = nullptr;
  EXPECT_OK(api.get_error_name(CUDA_ERROR_NOT_READY, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_NOT_READY");
  EXPECT_OK(api.get_error_string(CUDA_ERROR_NOT_READY, &text));
  ASSERT_NE(text, nullptr);
  EXPECT_STRNE(text, "");
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.get_error_name(static_cast<CUresult>(1020), &text));
  EXPECT_EQ(text, nullptr);
}

STATEMENT(C077, ContextsAndErrors, AllocationNeedsACurrentContext, "Driver API, Memory Management, cuMemAlloc",
          "Without a current context no memory is allocated: `CUDA_ERROR_INVALID_CONTEXT`.") {
  CUdeviceptr memory = 0;
  ASSERT_OK(api.ctx_set_current(nullptr));
  EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, api.mem_alloc(&memory, 4096));
}

}  // namespace
}  // namespace cistern::conformance
