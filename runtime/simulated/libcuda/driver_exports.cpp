// The functions behind the exported names: each calls the entry of the process's simulated
// driver. driver_exports.inc, written by CMake from driver_entries.def, has a line a name.

#include "runtime/simulated/libcuda/driver_exports.h"

#include <cistern/export.h>

#include <algorithm>
#include <iterator>

#include "runtime/driver_api.h"
#include "runtime/simulated/libcuda/process_device.h"

namespace cistern::simulated {
namespace {

template <class... Args>
CUresult forward(DriverEntry<CUresult(Args...)> DriverApi::*entry, Args... args) noexcept {
  if (is_process_ending()) return CUDA_ERROR_DEINITIALIZED;
  const SimulatedDriver* device = process_device();
  return device == nullptr ? CUDA_ERROR_INVALID_VALUE : (device->api().*entry)(args...);
}

}  // namespace

// The names that the linker sees are the driver's, which cuda.h makes macros of: an assembler
// label gives them without naming them here.
namespace plain {
template <class Argument>
Argument pass(Argument argument) noexcept {
  return argument;
}
#define CISTERN_DRIVER_EXPORT(member, symbol, exported, version, next, parameters, arguments) \
  CISTERN_EXPORT CUresult member parameters noexcept __asm__(exported);                       \
  CUresult member parameters noexcept { return forward(&DriverApi::member CISTERN_LIST arguments); }
#define CISTERN_DRIVER_ALIAS(member, symbol, exported, parameters)
#define CISTERN_DRIVER_PER_THREAD(member, symbol, exported, parameters, arguments)
#define CISTERN_LIST(...) __VA_OPT__(, ) __VA_ARGS__
#include "runtime/simulated/libcuda/driver_exports.inc"
#undef CISTERN_DRIVER_EXPORT
#undef CISTERN_DRIVER_ALIAS
#undef CISTERN_DRIVER_PER_THREAD
}  // namespace plain

// A symbol whose ABI changed goes by two names here, with the same function behind both: the first
// ABIs, of CUDA 2 and 3, took sizes of 32 bits, and nothing in use asks for them.
namespace by_base_name {
#define CISTERN_DRIVER_EXPORT(member, symbol, exported, version, next, parameters, arguments)
#define CISTERN_DRIVER_ALIAS(member, symbol, exported, parameters) \
  CISTERN_EXPORT CUresult member parameters noexcept __asm__(symbol) __attribute__((alias(exported)));
#define CISTERN_DRIVER_PER_THREAD(member, symbol, exported, parameters, arguments)
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
#define CISTERN_DRIVER_EXPORT(member, symbol, exported, version, next, parameters, arguments)
#define CISTERN_DRIVER_ALIAS(member, symbol, exported, parameters)
#define CISTERN_DRIVER_PER_THREAD(member, symbol, exported, parameters, arguments) \
  CISTERN_EXPORT CUresult member parameters noexcept __asm__(exported);            \
  CUresult member parameters noexcept { return forward(&DriverApi::member CISTERN_LIST arguments); }
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
#define CISTERN_DRIVER_EXPORT(member, symbol, exported, version, next, parameters, arguments) \
  {symbol, version, next, address_of(&plain::member)},
#define CISTERN_DRIVER_ALIAS(member, symbol, exported, parameters)
#define CISTERN_DRIVER_PER_THREAD(member, symbol, exported, parameters, arguments)
#include "runtime/simulated/libcuda/driver_exports.inc"
#undef CISTERN_DRIVER_EXPORT
#undef CISTERN_DRIVER_PER_THREAD
};

const DriverExport per_thread_exports[] = {
#define CISTERN_DRIVER_EXPORT(member, symbol, exported, version, next, parameters, arguments)
#define CISTERN_DRIVER_PER_THREAD(member, symbol, exported, parameters, arguments) \
  {symbol, 0, 0, address_of(&per_thread::member)},
#include "runtime/simulated/libcuda/driver_exports.inc"
#undef CISTERN_DRIVER_EXPORT
#undef CISTERN_DRIVER_ALIAS
#undef CISTERN_DRIVER_PER_THREAD
};

template <std::size_t count>
const DriverExport* find(const DriverExport (&list)[count], std::string_view symbol) noexcept {
  const auto* found =
      std::find_if(std::begin(list), std::end(list), [&](const DriverExport& entry) { return entry.symbol == symbol; });
  return found == std::end(list) ? nullptr : found;
}

}  // namespace

const DriverExport* find_driver_export(std::string_view symbol) noexcept { return find(exports, symbol); }

void* find_per_thread_function(std::string_view symbol) noexcept {
  const DriverExport* entry = find(per_thread_exports, symbol);
  return entry == nullptr ? nullptr : entry->function;
}

}  // namespace cistern::simulated
