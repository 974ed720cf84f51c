#pragma once

// The processes that use a device, and how much of its memory each holds.
//
// On a simulated device they are those attached to it (shared=NAME), or this process alone. On a
// CUDA device NVML tells (libnvidia-ml.so.1, loaded when it is first asked for).
// Thread safety: the functions may be called from any thread.

#include <cistern/device.h>
#include <cistern/export.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cistern {

struct GpuProcess {
  std::uint32_t id = 0;
  std::optional<std::size_t> bytes = {};  // none where the system does not tell
};

// Those that the system shows to this process, by id. Throws NotSupported, with the reason, where
// nobody can tell: NVML cannot be loaded, or does not know the device.
[[nodiscard]] CISTERN_EXPORT std::vector<GpuProcess> gpu_processes(Device device = {});

// The text of torch.cuda.list_gpu_processes: a line "GPU:<index>", then one for each process, the id
// in 10 columns and MiB with three decimals in 12; "no processes are running" if there are none.
// Where nobody can tell, the second line says why.
[[nodiscard]] CISTERN_EXPORT std::string list_gpu_processes(Device device = {});

}  // namespace cistern
