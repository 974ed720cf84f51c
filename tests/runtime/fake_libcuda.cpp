// A library with the face of the CUDA driver, over a simulated one: what the loader asks of
// libcuda.so.1 it can ask of this. It answers by the driver's rules, keeps a list of what
// was asked, and is gone when the process exits, as the driver is.
//
// CISTERN_FAKE_CUDA_VERSION   the version it says it has (default 12080)
// CISTERN_FAKE_CUDA_LACKS     symbols that it does not have, separated by commas
// CISTERN_FAKE_CUDA_KERNEL_FAILS  a call about kernels, which fails with CUDA_ERROR_INVALID_IMAGE
// CISTERN_FAKE_CUDA_FORKS     set: cuInit runs a child process, as the driver runs nvidia-modprobe

#include <cistern/export.h>
#include <cistern/simulated.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "runtime/driver_api.h"

namespace cistern {
namespace {

bool gone = false;
struct GoneAtExit {
  ~GoneAtExit() { gone = true; }
} gone_at_exit;

SimulatedDriver& driver() {
  static SimulatedDriver& driver = *new SimulatedDriver({.devices = 2, .capacity_bytes = std::size_t{1} << 30});
  return driver;
}

template <auto member>
struct Forward;

template <class... Args, DriverEntry<CUresult(Args...)> DriverApi::*member>
struct Forward<member> {
  static CUresult call(Args... args) { return gone ? CUDA_ERROR_DEINITIALIZED : (driver().api().*member)(args...); }
};

CUresult init(unsigned flags) {
  if (std::getenv("CISTERN_FAKE_CUDA_FORKS") != nullptr) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0) return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  }
  return Forward<&DriverApi::init>::call(flags);
}

// Kernels of cistern's own: each runs by its name and its one parameter, on the simulated device, as strided work.
std::string& launches() {
  static std::string& launches = *new std::string();
  return launches;
}
std::mutex launches_mutex;

bool kernel_fails(const char* call) {
  const char* text = std::getenv("CISTERN_FAKE_CUDA_KERNEL_FAILS");
  return text != nullptr && std::string(text) == call;
}

CUresult library_load_data(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned, CUlibraryOption*,
                           void**, unsigned) {
  if (kernel_fails("cuLibraryLoadData")) return CUDA_ERROR_INVALID_IMAGE;
  *library = reinterpret_cast<CUlibrary>(const_cast<void*>(code));
  return std::string(static_cast<const char*>(code)).find(".version") == std::string::npos ? CUDA_ERROR_INVALID_IMAGE
                                                                                           : CUDA_SUCCESS;
}

CUresult library_get_kernel(CUkernel* kernel, CUlibrary library, const char* name) {
  if (kernel_fails("cuLibraryGetKernel")) return CUDA_ERROR_INVALID_IMAGE;
  const std::string code(reinterpret_cast<const char*>(library));
  if (code.find(".entry " + std::string(name) + "(") == std::string::npos) return CUDA_ERROR_NOT_FOUND;
  *kernel = reinterpret_cast<CUkernel>(const_cast<char*>(name));
  return CUDA_SUCCESS;
}

CUresult launch_kernel(CUfunction function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                       unsigned, CUstream stream, void** parameters, void**) {
  if (kernel_fails("cuLaunchKernel")) return CUDA_ERROR_INVALID_IMAGE;
  const std::string name(reinterpret_cast<const char*>(function));
  {
    const std::lock_guard lock(launches_mutex);
    launches() += name + " " + std::to_string(blocks) + " " + std::to_string(threads) + "\n";
  }
  const std::map<std::string, Element> elements = {
      {"u8", Element::u8},   {"u16", Element::u16}, {"u32", Element::u32},
      {"u64", Element::u64}, {"f16", Element::f16}, {"bf16", Element::bf16},
      {"f32", Element::f32}, {"f64", Element::f64}, {"boolean", Element::boolean}};
  StridedWork work = *static_cast<const StridedWork*>(parameters[0]);
  work.operation = name.starts_with("cistern_add_") ? StridedOperation::add : StridedOperation::copy;
  work.element = elements.at(name.substr(name.rfind('_') + 1));
  return driver().api().strided(work, stream);
}

struct Function {
  void* address;
  int introduced;
};

std::map<std::string, Function> make_functions() {
  std::map<std::string, Function> functions;
#define CISTERN_DRIVER_ENTRY(member, symbol, version, need, parameters) \
  functions[symbol] = {reinterpret_cast<void*>(&Forward<&DriverApi::member>::call), version};
#include "runtime/driver_entries.def"
#undef CISTERN_DRIVER_ENTRY
  functions["cuLibraryLoadData"] = {reinterpret_cast<void*>(&library_load_data), 12000};
  functions["cuLibraryGetKernel"] = {reinterpret_cast<void*>(&library_get_kernel), 12000};
  functions["cuLaunchKernel"] = {reinterpret_cast<void*>(&launch_kernel), 4000};
  functions["cuInit"].address = reinterpret_cast<void*>(&init);
  return functions;
}

int driver_version() {
  const char* text = std::getenv("CISTERN_FAKE_CUDA_VERSION");
  return text != nullptr ? std::atoi(text) : 12080;
}

bool is_lacking(const std::string& symbol) {
  const char* text = std::getenv("CISTERN_FAKE_CUDA_LACKS");
  return text != nullptr && ("," + std::string(text) + ",").find("," + symbol + ",") != std::string::npos;
}

std::mutex requests_mutex;
std::string& requests() {
  static std::string& requests = *new std::string();
  return requests;
}

}  // namespace
}  // namespace cistern

extern "C" {

CISTERN_EXPORT CUresult cuDriverGetVersion(int* version) {
  *version = cistern::driver_version();
  return CUDA_SUCCESS;
}

CISTERN_EXPORT CUresult cuGetProcAddress_v2(const char* symbol, void** function, int cuda_version, cuuint64_t flags,
                                            CUdriverProcAddressQueryResult* status) {
  using namespace cistern;
  static const std::map<std::string, Function>& functions = *new std::map<std::string, Function>(make_functions());
  const std::lock_guard lock(requests_mutex);
  requests() += symbol + (" " + std::to_string(cuda_version)) + " " + std::to_string(flags) + "\n";
  *function = nullptr;
  if (cuda_version > driver_version()) return CUDA_ERROR_INVALID_VALUE;
  const auto found = functions.find(symbol);
  if (found == functions.end() || is_lacking(symbol)) {
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  } else if (cuda_version < found->second.introduced) {
    *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  } else {
    *status = CU_GET_PROC_ADDRESS_SUCCESS;
    *function = found->second.address;
  }
  return CUDA_SUCCESS;
}

// The kernels that were launched so far: a line "name blocks threads" each.
CISTERN_EXPORT const char* cistern_fake_cuda_launches() {
  const std::lock_guard lock(cistern::launches_mutex);
  return cistern::launches().c_str();
}

// What was asked so far: a line "symbol version flags" each.
CISTERN_EXPORT const char* cistern_fake_cuda_requests() {
  const std::lock_guard lock(cistern::requests_mutex);
  return cistern::requests().c_str();
}

}  // extern "C"
