#pragma once

// A user's functions in boxes that the driver is given to run.
//
// Thread safety: a box belongs to whoever holds it; the driver runs it on a thread of its own.

#include <cistern/stream.h>

#include <functional>
#include <memory>

#include "runtime/driver_api.h"

namespace cistern {

// A function that the driver runs once, by its number (queued_functions.h): given to cuLaunchHostFunc.
using HostFunction = std::function<void()>;
void CUDA_CB run_host_function_once(void* number) noexcept;
// One that a graph runs at each launch, and that the graph's end destroys: a CUuserObject.
void CUDA_CB run_host_function(void* box) noexcept;
void CUDA_CB destroy_host_function(void* box) noexcept;

// A callback of cuStreamAddCallback, with what it gets.
struct HostCallback {
  StreamCallback function;
  void* user_data = nullptr;
  Stream stream;  // without its owner: a callback is no place to destroy a stream
};
void CUDA_CB run_host_callback(CUstream stream, CUresult status, void* box) noexcept;

}  // namespace cistern
