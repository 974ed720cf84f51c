#pragma once

// The one simulated driver of a process that loads our libcuda.so.1.

#include <cistern/simulated.h>

namespace cistern::simulated {

// Made by the first call, with the settings in CISTERN_SIMULATED (those of CISTERN_DEVICE=simulated:)
// and what CUDA_VISIBLE_DEVICES leaves of its devices. Null when the settings are wrong, which
// standard error then says once. Never destroyed: code that runs at exit may still call.
[[nodiscard]] SimulatedDriver* process_device() noexcept;

// Whether the process is so far into its exit that the driver answers
// CUDA_ERROR_DEINITIALIZED, as NVIDIA's does.
[[nodiscard]] bool is_process_ending() noexcept;

}  // namespace cistern::simulated
