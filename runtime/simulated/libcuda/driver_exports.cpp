// The functions behind the exported names: each calls the process's simulated driver, by the table or
// by program_calls.h. driver_exports.inc, written by CMake from the lists of entries, has a line a name.

#include "runtime/simulated/libcuda/driver_exports.h"

#include <cistern/export.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <type_traits>

#include "runtime/driver_api.h"
#include "runtime/simulated/libcuda/process_device.h"
#include "runtime/simulated/libcuda/program_calls.h"

namespace cistern::simulated {
namespace {

// Calls serve(driver), if there is one.
template <class Serve>
CUresult on_process_device(Serve serve) noexcept {
  if (is_process_ending()) return CUDA_ERROR_DEINITIALIZED;
  const SimulatedDriver* device = process_device();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  try {
    return serve(device->api());
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

template <class... Params, class... Args>
CUresult serve(CUresult (*function)(const Call&, Params...), CUstream default_stream, Args... args) noexcept {
  return on_process_device([&](const DriverApi& api) {
    return function({*find_driver_state(api), api, default_stream}, args...);
  });
}

// An entry of the table. Only cuMemcpy works on a default stream that it does not name.
template <auto entry, class... Args>
CUresult forward(CUstream default_stream, Args... args) noexcept {
  if constexpr (std::is_same_v<decltype(entry), decltype(&DriverApi::memcpy)>) {
    if constexpr (entry == &DriverApi::memcpy) return serve(memcpy_on_default_stream, default_stream, args...);
  }
  return on_process_device([&](const DriverApi& api) { return (api.*entry)(args...); });
}

// What is not there says so only to who may ask: not before cuInit, nor inside a host function.
template <class... Args>
CUresult refuse(Args...) noexcept {
  return on_process_device([](const DriverApi& api) {
    CUcontext context = nullptr;
    const CUresult refused = api.ctx_get_current(&context);
    return refused == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : refused;
  });
}

}  // namespace

#define CISTERN_LIST(...) __VA_OPT__(, ) __VA_ARGS__
#define CISTERN_SERVE_DRIVER(member, stream, arguments) forward<&DriverApi::member>(stream CISTERN_LIST arguments)
#define CISTERN_SERVE_PROGRAM(member, stream, arguments) serve(&simulated::member, stream CISTERN_LIST arguments)
#define CISTERN_SERVE_ABSENT(member, stream, arguments) refuse(stream CISTERN_LIST arguments)

// The names that the linker sees are the driver's, which cuda.h makes macros of: an assembler
// label gives them without naming them here.
namespace plain {
template <class Argument>
Argument pass(Argument argument) noexcept {
  return argument;
}
#define CISTERN_DRIVER_EXPORT(kind, member, symbol, exported, version, next, parameters, arguments) \
  CISTERN_EXPORT CUresult member parameters noexcept __asm__(exported);                             \
  CUresult member parameters noexcept { return CISTERN_SERVE_##kind(member, CU_STREAM_LEGACY, arguments); }
#define CISTERN_DRIVER_ALIAS(member, symbol, exported, parameters)
#define CISTERN_DRIVER_PER_THREAD(kind, member, symbol, exported, version, parameters, arguments)
#include "runtime/simulated/libcuda/driver_exports.inc"
#undef CISTERN_DRIVER_EXPORT
#undef CISTERN_DRIVER_ALIAS
#undef CISTERN_DRIVER_PER_THREAD
}  // namespace plain

// A symbol whose ABI changed goes by two names here, with the same function behind both: the first
// ABIs, of CUDA 2 and 3, took sizes of 32 bits, and nothing in use asks for them.
namespace by_base_name {
#define CISTERN_DRIVER_EXPORT(kind, member, symbol, exported, version, next, parameters, arguments)
#define CISTERN_DRIVER_ALIAS(member, symbol, exported, parameters) \
  CISTERN_EXPORT CUresult member parameters noexcept __asm__(symbol) __attribute__((alias(exported)));
#define CISTERN_DRIVER_PER_THREAD(kind, member, symbol, exported, version, parameters, arguments)
#include "runtime/simulated/libcuda/driver_exports.inc"
#undef CISTERN_DRIVER_EXPORT
#undef CISTERN_DRIVER_ALIAS
#undef CISTERN_DRIVER_PER_THREAD
}  // namespace by_base_name

namespace per_thread {
template <class Argument>
Argument pass(Argument argument) noexcept {
  return argument;
}
CUstream pass(CUstream stream) noexcept { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }
#define CISTERN_DRIVER_EXPORT(kind, member, symbol, exported, version, next, parameters, arguments)
#define CISTERN_DRIVER_ALIAS(member, symbol, exported, parameters)
#define CISTERN_DRIVER_PER_THREAD(kind, member, symbol, exported, version, parameters, arguments) \
  CISTERN_EXPORT CUresult member parameters noexcept __asm__(exported);                           \
  CUresult member parameters noexcept { return CISTERN_SERVE_##kind(member, CU_STREAM_PER_THREAD, arguments); }
#include "runtime/simulated/libcuda/driver_exports.inc"
#undef CISTERN_DRIVER_EXPORT
#undef CISTERN_DRIVER_ALIAS
#undef CISTERN_DRIVER_PER_THREAD
}  // namespace per_thread

namespace {

template <class... Args>
void* address_of(CUresult (*function)(Args...) noexcept) {
  return reinterpret_cast<void*>(function);
}

const DriverExport exports[] = {
#define CISTERN_DRIVER_EXPORT(kind, member, symbol, exported, version, next, parameters, arguments) \
  {symbol, version, next, address_of(&plain::member)},
#define CISTERN_DRIVER_ALIAS(member, symbol, exported, parameters)
#define CISTERN_DRIVER_PER_THREAD(kind, member, symbol, exported, version, parameters, arguments)
#include "runtime/simulated/libcuda/driver_exports.inc"
#undef CISTERN_DRIVER_EXPORT
#undef CISTERN_DRIVER_PER_THREAD
};

const DriverExport per_thread_exports[] = {
#define CISTERN_DRIVER_EXPORT(kind, member, symbol, exported, version, next, parameters, arguments)
#define CISTERN_DRIVER_PER_THREAD(kind, member, symbol, exported, version, parameters, arguments) \
  {symbol, version, 0, address_of(&per_thread::member)},
#include "runtime/simulated/libcuda/driver_exports.inc"
#undef CISTERN_DRIVER_EXPORT
#undef CISTERN_DRIVER_ALIAS
#undef CISTERN_DRIVER_PER_THREAD
};

}  // namespace

const DriverExport* find_driver_export(std::string_view symbol, int version) noexcept {
  const DriverExport* found = nullptr;
  for (const DriverExport& entry : exports) {
    if (entry.symbol != symbol) continue;
    // The lists have the versions of a symbol in ascending order.
    if (found == nullptr || entry.version <= version) found = &entry;
  }
  return found;
}

void* find_per_thread_function(const DriverExport& entry) noexcept {
  const auto* found = std::find_if(
      std::begin(per_thread_exports), std::end(per_thread_exports),
      [&](const DriverExport& each) { return each.symbol == entry.symbol && each.version == entry.version; });
  return found == std::end(per_thread_exports) ? nullptr : found->function;
}

}  // namespace cistern::simulated
