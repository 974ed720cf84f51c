#pragma once

// One story a function; a story that fails says where and ends the program.

#include <cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void check_that(int held, const char* what, const char* file, int line) {
  if (held) return;
  fprintf(stderr, "%s:%d: expected %s\n", file, line, what);
  exit(1);
}
static inline void check_result(CUresult result, CUresult expected, const char* call, const char* file, int line) {
  if (result == expected) return;
  const char* name = "an unknown error";
  cuGetErrorName(result, &name);
  fprintf(stderr, "%s:%d: %s: %s (%d), expected %d\n", file, line, call, name, (int)result, (int)expected);
  exit(1);
}
#define CHECK(condition) check_that((condition), #condition, __FILE__, __LINE__)
#define OK(call) check_result((call), CUDA_SUCCESS, #call, __FILE__, __LINE__)
#define FAILS(error, call) check_result((call), (error), #call, __FILE__, __LINE__)

// The primary context of a device, retained and current.
static inline CUcontext use_device(int device) {
  CUcontext context = NULL;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, device));
  OK(cuCtxSetCurrent(context));
  return context;
}

static inline CUdeviceptr device_memory(size_t bytes) {
  CUdeviceptr pointer = 0;
  OK(cuMemAlloc(&pointer, bytes));
  return pointer;
}

void start(void);
void streams(void);
void events(void);
void copies(void);
void pageable(void);
void rows(void);
void boxes(void);
void row_errors(void);
void captured_rows(void);
void fills(void);
void row_fills(void);
void contexts(void);
void limits(void);
void devices(void);
void memory(void);
void attributes(void);
void unsupported(void);
void symbols(void);
