#include "runtime/cuda_driver.h"

#include <cistern/error.h>
#include <cistern/simulated_controls.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <utility>

namespace cistern {
namespace {

// cuGetProcAddress as it is since CUDA 12.0; drivers before lack the symbol.
using GetProcAddress = CUresult (*)(const char* symbol, void** function, int cuda_version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult* status);
constexpr const char* kGetProcAddress = "cuGetProcAddress_v2";
constexpr int kOldestVersion = 12000;

enum class Need { required, optional };

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// The library and, once it is known, the driver's version, for messages.
struct Library {
  std::string path;
  GetProcAddress get_proc_address = nullptr;
  int version = 0;

  [[nodiscard]] std::string describe() const {
    return version == 0 ? path : fmt::format("{} (driver version {})", path, version_text(version));
  }
};

// Null where the driver lacks the entry, or has it with a later ABI only.
void* find(const Library& library, const char* symbol, int version) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  // The plain variants, whatever the application is compiled with: handle 0 is the legacy stream.
  const CUresult result =
      library.get_proc_address(symbol, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
  return result == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS ? function : nullptr;
}

void* find(const Library& library, const char* symbol, int version, Need need) {
  void* function = find(library, symbol, version);
  if (function == nullptr && need == Need::required)
    throw NotSupported(fmt::format("{} lacks {} (of CUDA {}): cistern needs an NVIDIA driver of CUDA {} or later",
                                   library.describe(), symbol, version_text(version), version_text(kOldestVersion)));
  return function;
}

// The function's address travels as the entry's object, so that no state is kept anywhere.
template <class... Args>
void fill(DriverEntry<CUresult(Args...)>& entry, void* function) {
  if (function == nullptr) return;
  entry = {function, [](void* self, Args... args) { return reinterpret_cast<CUresult (*)(Args...)>(self)(args...); }};
}

// cuRAND has kernels, which a simulated device does not run.
void fill(RandomSource& source, const SimulatedControls& controls) {
  source = {reinterpret_cast<void*>(controls.fill_random), [](void* self, const RandomFill& values, CUstream stream) {
              const auto function = reinterpret_cast<decltype(SimulatedControls::fill_random)>(self);
              return static_cast<CUresult>(function(stream, reinterpret_cast<void*>(values.destination), values.count,
                                                    static_cast<int>(values.kind), values.seed, values.position,
                                                    values.mean, values.standard_deviation));
            }};
}

void fill(StridedSource& source, const SimulatedControls& controls) {
  source = {reinterpret_cast<void*>(controls.run_strided), [](void* self, const StridedWork& work, CUstream stream) {
              const auto function = reinterpret_cast<decltype(SimulatedControls::run_strided)>(self);
              return static_cast<CUresult>(function(stream, static_cast<int>(work.operation),
                                                    static_cast<int>(work.element), work.rank, work.extents,
                                                    reinterpret_cast<void*>(work.destination), work.destination_strides,
                                                    reinterpret_cast<const void*>(work.source), work.source_strides));
            }};
}

// Their names and versions, as driver_entries.def has those of the others.
void fill(KernelEntries& kernels, const Library& library) {
  fill(kernels.library_load_data, find(library, "cuLibraryLoadData", 12000));
  fill(kernels.library_get_kernel, find(library, "cuLibraryGetKernel", 12000));
  fill(kernels.launch_kernel, find(library, "cuLaunchKernel", 4000));
}

// NVIDIA's driver has no such symbol. A library that is older than this code lacks what it would call.
const SimulatedControls* find_controls(const Library& library) {
  void* const function = find(library, "cistern_simulated_controls", kOldestVersion);
  if (function == nullptr) return nullptr;
  const SimulatedControls* controls = reinterpret_cast<decltype(&cistern_simulated_controls)>(function)();
  return controls->size >= sizeof(SimulatedControls) ? controls : nullptr;
}

Library open(const std::string& path) {
  // RTLD_LOCAL: the driver's names are nobody else's business. Never closed: the driver
  // starts threads that outlive any use of it.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    throw NotSupported(fmt::format("the CUDA driver cannot be loaded: {}", reason != nullptr ? reason : path.c_str()));
  }
  Library library{path, reinterpret_cast<GetProcAddress>(dlsym(handle, kGetProcAddress)), 0};
  using GetVersion = CUresult (*)(int* version);
  const auto get_version = reinterpret_cast<GetVersion>(dlsym(handle, "cuDriverGetVersion"));
  if (get_version != nullptr && get_version(&library.version) != CUDA_SUCCESS) library.version = 0;
  if (library.get_proc_address == nullptr || (library.version != 0 && library.version < kOldestVersion))
    throw NotSupported(fmt::format(
        "{}{}: cistern needs an NVIDIA driver of CUDA {} or later", library.describe(),
        library.get_proc_address == nullptr ? fmt::format(" has no {}", kGetProcAddress) : std::string(" is too old"),
        version_text(kOldestVersion)));
  return library;
}

}  // namespace

std::string cuda_library() {
  const char* path = std::getenv("CISTERN_LIBCUDA");
  return path != nullptr && *path != '\0' ? path : "libcuda.so.1";
}

DriverApi load_cuda_driver(const std::string& path) {
  const Library library = open(path);
  DriverApi api;
#define CISTERN_DRIVER_ENTRY(member, symbol, version, need, parameters) \
  fill(api.member, find(library, symbol, version, Need::need));
#include "runtime/driver_entries.def"
#undef CISTERN_DRIVER_ENTRY
  api.controls = find_controls(library);
  api.has_cuda_libraries = api.controls == nullptr;
  if (api.controls != nullptr) {
    fill(api.fill_random, *api.controls);
    fill(api.strided, *api.controls);
  } else {
    fill(api.kernels, library);
  }
  return api;
}

}  // namespace cistern
