#include "runtime/strided_kernels.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include "runtime/relaxed_capture.h"

namespace cistern {
namespace {

constexpr const char* kCode =
#include "runtime/strided_kernels.inc"
    ;

// By operation, then by element. Copies are by size alone.
constexpr const char* kNames[2][kElementCount] = {
    {"cistern_copy_u8", "cistern_copy_u16", "cistern_copy_u32", "cistern_copy_u64", "cistern_copy_u16",
     "cistern_copy_u16", "cistern_copy_u32", "cistern_copy_u64", "cistern_copy_u8"},
    {"cistern_add_u8", "cistern_add_u16", "cistern_add_u32", "cistern_add_u64", "cistern_add_f16", "cistern_add_bf16",
     "cistern_add_f32", "cistern_add_f64", "cistern_add_boolean"}};

void check(const DriverApi& api, CUresult result, const char* call, const char* kernel) {
  if (result != CUDA_SUCCESS)
    throw DriverError(result, call, fmt::format("{} of {}: {}", call, kernel, driver_words(api, result)));
}

// The kernels of the process's driver. No lock is held while they are loaded: what a second thread loads at the
// same moment is left loaded, and not used.
class Kernels {
 public:
  CUkernel find(const DriverApi& api, StridedOperation operation, Element element) {
    std::atomic<CUkernel>& known = kernels_[static_cast<std::size_t>(operation)][static_cast<std::size_t>(element)];
    if (CUkernel const kernel = known.load(std::memory_order_acquire); kernel != nullptr) return kernel;
    const char* const name = kNames[static_cast<std::size_t>(operation)][static_cast<std::size_t>(element)];
    const RelaxedCapture relaxed(api, name);
    CUkernel kernel = nullptr;
    check(api, api.kernels.library_get_kernel(&kernel, library(api), name), "cuLibraryGetKernel", name);
    known.store(kernel, std::memory_order_release);
    return kernel;
  }

 private:
  CUlibrary library(const DriverApi& api) {
    CUlibrary first = library_.load(std::memory_order_acquire);
    if (first != nullptr) return first;
    CUlibrary made = nullptr;
    check(api, api.kernels.library_load_data(&made, kCode, nullptr, nullptr, 0, nullptr, nullptr, 0),
          "cuLibraryLoadData", "cistern's kernels");
    return library_.compare_exchange_strong(first, made) ? made : first;
  }

  std::atomic<CUlibrary> library_{nullptr};
  std::array<std::array<std::atomic<CUkernel>, kElementCount>, 2> kernels_{};
};
Kernels& kernels() {
  static Kernels& kernels = *new Kernels;
  return kernels;
}

}  // namespace

void launch_strided(const DriverApi& api, const StridedWork& work, CUstream stream) {
  if (!api.kernels.library_load_data || !api.kernels.library_get_kernel || !api.kernels.launch_kernel)
    throw NotSupported(
        "the driver lacks cuLibraryLoadData, cuLibraryGetKernel or cuLaunchKernel: expected one of "
        "CUDA 12.0 or later");
  const CUkernel kernel = kernels().find(api, work.operation, work.element);
  // Each thread goes on by whole grids, so that this many blocks will do on any device.
  constexpr std::uint64_t threads = 256;
  constexpr std::uint64_t most_blocks = 4096;
  const std::uint64_t blocks = std::min(most_blocks, (work.count + threads - 1) / threads);
  StridedWork parameter = work;
  void* parameters[] = {&parameter};
  check(api,
        api.kernels.launch_kernel(reinterpret_cast<CUfunction>(kernel), static_cast<unsigned>(blocks), 1, 1, threads, 1,
                                  1, 0, stream, parameters, nullptr),
        "cuLaunchKernel", kNames[static_cast<std::size_t>(work.operation)][static_cast<std::size_t>(work.element)]);
}

}  // namespace cistern
