#pragma once

// The driver's entries as a shared library exports them.

#include <string_view>

namespace cistern::simulated {

struct DriverExport {
  std::string_view symbol;  // the base name, as cuGetProcAddress is asked for it
  int version;              // the CUDA version that introduced the ABI of `function`
  int next_version;         // the version from which the symbol has another ABI; 0: none is known
  void* function;
};

// Null if there is no such entry.
[[nodiscard]] const DriverExport* find_driver_export(std::string_view symbol) noexcept;

// The variant whose stream 0 is the per-thread default stream; null where there is none.
[[nodiscard]] void* find_per_thread_function(std::string_view symbol) noexcept;

}  // namespace cistern::simulated
