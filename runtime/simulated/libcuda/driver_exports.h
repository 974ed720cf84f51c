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

// The latest ABI of the symbol up to a version of CUDA; where all are later, the first. Null if there
// is no such symbol.
[[nodiscard]] const DriverExport* find_driver_export(std::string_view symbol, int version) noexcept;

// The variant whose stream 0 is the per-thread default stream; null where there is none.
[[nodiscard]] void* find_per_thread_function(const DriverExport& entry) noexcept;

}  // namespace cistern::simulated
