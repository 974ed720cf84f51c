#include "runtime/nvml.h"

#include <cistern/error.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

namespace cistern {
namespace {

// NVML's declarations as far as they are used here (NVML API Reference Guide, "Device Queries").
using NvmlDevice = struct NvmlDeviceTag*;
constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
constexpr unsigned long long kNotAvailable = ~0ULL;
// nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v3.
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};
using Init = int (*)();
using HandleByUuid = int (*)(const char* uuid, NvmlDevice* device);
using RunningProcesses = int (*)(NvmlDevice device, unsigned* count, ProcessInfo* infos);
using ErrorString = const char* (*)(int result);

struct Library {
  void* handle = nullptr;
  Init init = nullptr;
  HandleByUuid handle_by_uuid = nullptr;
  RunningProcesses running_processes = nullptr;
  ErrorString error_string = nullptr;
};

template <class Function>
Function find(void* library, const char* symbol) {
  void* function = dlsym(library, symbol);
  if (function == nullptr) throw NotSupported(fmt::format("NVML has no {}", symbol));
  return reinterpret_cast<Function>(function);
}

void check(const Library& nvml, int result, const char* call) {
  if (result == kSuccess) return;
  throw NotSupported(fmt::format("{}: {}", call, nvml.error_string(result)));
}

Library load() {
  const char* chosen = std::getenv("CISTERN_LIBNVML");
  const std::string path = chosen != nullptr && *chosen != '\0' ? chosen : "libnvidia-ml.so.1";
  Library nvml;
  nvml.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (nvml.handle == nullptr) {
    const char* reason = dlerror();
    throw NotSupported(fmt::format("NVML cannot be loaded: {}", reason != nullptr ? reason : path.c_str()));
  }
  nvml.init = find<Init>(nvml.handle, "nvmlInit_v2");
  nvml.handle_by_uuid = find<HandleByUuid>(nvml.handle, "nvmlDeviceGetHandleByUUID");
  nvml.running_processes = find<RunningProcesses>(nvml.handle, "nvmlDeviceGetComputeRunningProcesses_v3");
  nvml.error_string = find<ErrorString>(nvml.handle, "nvmlErrorString");
  check(nvml, nvml.init(), "nvmlInit");
  return nvml;
}

// A load that failed is tried again by the next call.
const Library& library() {
  static const Library nvml = load();
  return nvml;
}

}  // namespace

std::vector<GpuProcess> nvml_processes(const std::string& uuid) {
  const Library& nvml = library();
  NvmlDevice device = nullptr;
  check(nvml, nvml.handle_by_uuid(uuid.c_str(), &device), "nvmlDeviceGetHandleByUUID");
  std::vector<ProcessInfo> infos(64);
  int result = kInsufficientSize;
  auto count = static_cast<unsigned>(infos.size());
  // Processes come and go: the count that was too small then may be too small again.
  while (result == kInsufficientSize) {
    if (count > infos.size()) infos.resize(count + count / 2);
    count = static_cast<unsigned>(infos.size());
    result = nvml.running_processes(device, &count, infos.data());
  }
  check(nvml, result, "nvmlDeviceGetComputeRunningProcesses");
  std::vector<GpuProcess> processes;
  for (unsigned i = 0; i < count; ++i) {
    GpuProcess process{infos[i].pid};
    if (infos[i].used_bytes != kNotAvailable) process.bytes = static_cast<std::size_t>(infos[i].used_bytes);
    processes.push_back(process);
  }
  return processes;
}

}  // namespace cistern
