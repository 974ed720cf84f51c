#pragma once

// What a simulated device says of itself, by its number before CUDA_VISIBLE_DEVICES.
//
// Thread safety: all functions may be called from any thread.

#include <cistern/simulated.h>

#include <cuda.h>

#include <array>
#include <optional>
#include <string>

namespace cistern::simulated {

inline constexpr const char* kDeviceName = "simulated";

[[nodiscard]] std::array<unsigned char, 16> device_uuid(int physical) noexcept;
// E.g. "GPU-63697374-6572-6e00-8000-000000000001".
[[nodiscard]] std::string device_uuid_text(int physical);
// Nothing if the driver does not know the attribute.
[[nodiscard]] std::optional<int> device_attribute(CUdevice_attribute attribute, const SimulatedOptions& options,
                                                  int physical);

}  // namespace cistern::simulated
