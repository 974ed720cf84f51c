#include "runtime/nvml.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include "runtime/shared_library.h"

namespace cistern {
namespace {

// NVML's declarations as far as they are used here (NVML API Reference Guide, "Device Queries").
using NvmlDevice = struct NvmlDeviceTag*;
constexpr int kNvmlSuccess = 0;
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

struct Nvml {
  SharedLibrary library{"NVML", "CISTERN_LIBNVML", {"libnvidia-ml.so.1"}};
  Init init = nullptr;
  HandleByUuid handle_by_uuid = nullptr;
  RunningProcesses running_processes = nullptr;
  ErrorString error_string = nullptr;

  Nvml();
};

void check_nvml(const Nvml& nvml, int result, const char* call) {
  if (result == kNvmlSuccess) return;
  throw NotSupported(fmt::format("{}: {}", call, nvml.error_string(result)));
}

Nvml::Nvml() {
  library.find(init, "nvmlInit_v2");
  library.find(handle_by_uuid, "nvmlDeviceGetHandleByUUID");
  library.find(running_processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  library.find(error_string, "nvmlErrorString");
  check_nvml(*this, init(), "nvmlInit");
}

// A load that failed is tried again by the next call.
const Nvml& loaded() {
  static const Nvml& nvml = *new Nvml;
  return nvml;
}

}  // namespace

std::vector<GpuProcess> nvml_processes(const std::string& uuid) {
  const Nvml& nvml = loaded();
  NvmlDevice device = nullptr;
  check_nvml(nvml, nvml.handle_by_uuid(uuid.c_str(), &device), "nvmlDeviceGetHandleByUUID");
  std::vector<ProcessInfo> infos(64);
  int result = kInsufficientSize;
  auto count = static_cast<unsigned>(infos.size());
  // Processes come and go: the count that was too small then may be too small again.
  while (result == kInsufficientSize) {
    if (count > infos.size()) infos.resize(count + count / 2);
    count = static_cast<unsigned>(infos.size());
    result = nvml.running_processes(device, &count, infos.data());
  }
  check_nvml(nvml, result, "nvmlDeviceGetComputeRunningProcesses");
  std::vector<GpuProcess> processes;
  for (unsigned i = 0; i < count; ++i) {
    GpuProcess process{infos[i].pid};
    if (infos[i].used_bytes != kNotAvailable) process.bytes = static_cast<std::size_t>(infos[i].used_bytes);
    processes.push_back(process);
  }
  return processes;
}

}  // namespace cistern
