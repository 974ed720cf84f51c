// The stack of contexts, and what a context says of itself. "CUDA Driver API", "Context Management" and
// "Primary Context Management". The contexts are the devices' primary ones.

#include <array>
#include <atomic>

#include "runtime/simulated/libcuda/program_calls.h"

namespace cistern::simulated {
namespace {

// An error if no context is current, or the driver takes no call now.
CUresult require_context(const Call& call, int* device) {
  if (const CUresult refused = call.state.admit(DriverEntryId::ctx_get_device); refused != CUDA_SUCCESS) return refused;
  const std::lock_guard lock(call.state.mutex);
  return call.state.find_current(device);
}

// What device code would be limited by: kept and told, for there is none. The first values are those
// of the programming guide ("Dynamic Global Memory Allocation and Operations", "Formatted Output").
struct Limit {
  CUlimit limit;
  std::atomic<std::size_t> value;
};
std::array<Limit, 3> limits{{{CU_LIMIT_STACK_SIZE, {std::size_t{1} << 10}},
                             {CU_LIMIT_PRINTF_FIFO_SIZE, {std::size_t{1} << 20}},
                             {CU_LIMIT_MALLOC_HEAP_SIZE, {std::size_t{8} << 20}}}};

std::atomic<std::size_t>* find(CUlimit limit) {
  for (Limit& each : limits)
    if (each.limit == limit) return &each.value;
  return nullptr;
}

}  // namespace

CUresult ctx_push_current(const Call& call, CUcontext context) {
  if (const CUresult refused = call.state.admit(DriverEntryId::ctx_set_current); refused != CUDA_SUCCESS)
    return refused;
  const int device = call.state.device_of(context);
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  call.state.current.push(device);
  return CUDA_SUCCESS;
}

CUresult ctx_pop_current(const Call& call, CUcontext* context) {
  if (const CUresult refused = call.state.admit(DriverEntryId::ctx_set_current); refused != CUDA_SUCCESS)
    return refused;
  const int device = call.state.current.pop();
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = call.state.context_of(device);
  return CUDA_SUCCESS;
}

CUresult ctx_get_flags(const Call& call, unsigned* flags) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int device = 0;
  if (const CUresult refused = require_context(call, &device); refused != CUDA_SUCCESS) return refused;
  const std::lock_guard lock(call.state.mutex);
  *flags = call.state.device(device).flags;
  return CUDA_SUCCESS;
}

CUresult primary_ctx_set_flags(const Call& call, CUdevice device, unsigned flags) {
  if (const CUresult refused = call.state.admit(DriverEntryId::primary_ctx_get_state); refused != CUDA_SUCCESS)
    return refused;
  if (!call.state.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const unsigned schedule = flags & CU_CTX_SCHED_MASK;
  const bool is_one = (schedule & (schedule - 1)) == 0;  // the ways to wait exclude each other
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0 || !is_one) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(call.state.mutex);
  call.state.device(device).flags = flags;
  return CUDA_SUCCESS;
}

// "Returns a version number in version corresponding to the capabilities of the context": 3020, which
// is that of cuCtxCreate's second form.
CUresult ctx_get_api_version(const Call& call, CUcontext context, unsigned* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = call.state.admit(DriverEntryId::ctx_get_device); refused != CUDA_SUCCESS) return refused;
  if (context != nullptr && call.state.device_of(context) < 0) return CUDA_ERROR_INVALID_CONTEXT;
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult ctx_get_limit(const Call& call, std::size_t* value, CUlimit limit) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int device = 0;
  if (const CUresult refused = require_context(call, &device); refused != CUDA_SUCCESS) return refused;
  const std::atomic<std::size_t>* kept = find(limit);
  if (kept == nullptr) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *value = kept->load(std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult ctx_set_limit(const Call& call, CUlimit limit, std::size_t value) {
  int device = 0;
  if (const CUresult refused = require_context(call, &device); refused != CUDA_SUCCESS) return refused;
  std::atomic<std::size_t>* kept = find(limit);
  if (kept == nullptr) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  kept->store(value, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

// "On devices where the size of the L1 cache and shared memory are fixed", as here, no preference is
// all there is, and setting one has no effect.
CUresult ctx_get_cache_config(const Call& call, CUfunc_cache* config) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int device = 0;
  if (const CUresult refused = require_context(call, &device); refused != CUDA_SUCCESS) return refused;
  *config = CU_FUNC_CACHE_PREFER_NONE;
  return CUDA_SUCCESS;
}

CUresult ctx_set_cache_config(const Call& call, CUfunc_cache config) {
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  int device = 0;
  return require_context(call, &device);
}

// A primary context is released, not destroyed, and there is no other.
CUresult ctx_destroy(const Call& call, CUcontext context) {
  if (const CUresult refused = call.state.admit(DriverEntryId::ctx_set_current); refused != CUDA_SUCCESS)
    return refused;
  return context == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace cistern::simulated
