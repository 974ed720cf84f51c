#include <cistern/error.h>
#include <cistern/processes.h>
#include <fmt/format.h>

#include <algorithm>

#include "runtime/device_processes.h"
#include "runtime/device_uuid.h"
#include "runtime/nvml.h"
#include "runtime/process_driver.h"

namespace cistern {

std::vector<GpuProcess> processes_on(const DriverApi& api, CUdevice device) {
  return api.list_processes ? api.list_processes(device) : nvml_processes(uuid_text(uuid_of_device(api, device)));
}

std::vector<GpuProcess> gpu_processes(Device device) {
  const int index = resolve_device(device);
  std::vector<GpuProcess> processes = processes_on(process_driver(), process_contexts().driver_device(index));
  std::sort(processes.begin(), processes.end(), [](const GpuProcess& a, const GpuProcess& b) { return a.id < b.id; });
  return processes;
}

std::string list_gpu_processes(Device device) {
  const int index = resolve_device(device);
  std::string text = fmt::format("GPU:{}", index);
  try {
    const std::vector<GpuProcess> processes = gpu_processes(Device(index));
    if (processes.empty()) text += "\nno processes are running";
    for (const GpuProcess& process : processes) {
      constexpr double mebibyte = 1024.0 * 1024.0;
      const std::string used =
          process.bytes ? fmt::format("{:.3f}", static_cast<double>(*process.bytes) / mebibyte) : "unknown";
      text += fmt::format("\nprocess {:>10d} uses {:>12} MB GPU memory", process.id, used);
    }
  } catch (const NotSupported& error) {
    text += fmt::format("\nits processes are not known: {}", error.what());
  }
  return text;
}

}  // namespace cistern
