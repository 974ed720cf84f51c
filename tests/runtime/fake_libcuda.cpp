// A library with the face of the CUDA driver, over a simulated one: what the loader asks of
// libcuda.so.1 it can ask of this. It answers by the driver's rules, keeps a list of what
// was asked, and is gone when the process exits, as the driver is.
//
// CISTERN_FAKE_CUDA_VERSION   the version it says it has (default 12080)
// CISTERN_FAKE_CUDA_LACKS     symbols that it does not have, separated by commas
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

// What was asked so far: a line "symbol version flags" each.
CISTERN_EXPORT const char* cistern_fake_cuda_requests() {
  const std::lock_guard lock(cistern::requests_mutex);
  return cistern::requests().c_str();
}

}  // extern "C"
