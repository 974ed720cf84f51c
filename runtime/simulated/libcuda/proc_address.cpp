// cuGetProcAddress, in the forms of CUDA 11.3 and 12.0 (CUDA Driver API, "Driver Entry Point Access").

#include <cistern/export.h>
#include <cistern/simulated_controls.h>
#include <cuda.h>

#include <string_view>

#include "runtime/driver_api.h"
#include "runtime/simulated/libcuda/driver_exports.h"
#include "runtime/simulated/libcuda/process_device.h"

namespace cistern::simulated {
namespace {

constexpr int kFirstVersion = 11030;
constexpr int kStatusVersion = 12000;  // from which cuGetProcAddress tells why

CUresult look_up(std::string_view symbol, void** function, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult* status) noexcept;

}  // namespace

CISTERN_EXPORT CUresult get_proc_address(const char* symbol, void** function, int version, cuuint64_t flags) noexcept
    __asm__("cuGetProcAddress");
CISTERN_EXPORT CUresult get_proc_address_and_status(const char* symbol, void** function, int version, cuuint64_t flags,
                                                    CUdriverProcAddressQueryResult* status) noexcept
    __asm__("cuGetProcAddress_v2");

CUresult get_proc_address_and_status(const char* symbol, void** function, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult* status) noexcept {
  constexpr cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (symbol == nullptr || function == nullptr || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  *function = nullptr;
  CUdriverProcAddressQueryResult ignored = CU_GET_PROC_ADDRESS_SUCCESS;
  return look_up(symbol, function, version, flags, status == nullptr ? &ignored : status);
}

CUresult get_proc_address(const char* symbol, void** function, int version, cuuint64_t flags) noexcept {
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult result = get_proc_address_and_status(symbol, function, version, flags, &status);
  if (result != CUDA_SUCCESS) return result;
  return status == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

namespace {

// The loader's own function: no entry of the table, but programs ask for it, too.
void* own_address(int version) {
  return version >= kStatusVersion ? reinterpret_cast<void*>(&get_proc_address_and_status)
                                   : reinterpret_cast<void*>(&get_proc_address);
}

CUresult look_up(std::string_view symbol, void** function, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult* status) noexcept {
  const SimulatedDriver* device = process_device();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int driver_version = 0;
  if (const CUresult result = device->api().driver_get_version(&driver_version); result != CUDA_SUCCESS) return result;
  if (version > driver_version) return CUDA_ERROR_INVALID_VALUE;
  if (symbol == "cistern_simulated_controls") {
    *status = CU_GET_PROC_ADDRESS_SUCCESS;
    *function = reinterpret_cast<void*>(&cistern_simulated_controls);
    return CUDA_SUCCESS;
  }

  const bool is_own = symbol == "cuGetProcAddress";
  const DriverExport* entry = is_own ? nullptr : find_driver_export(symbol, version);
  const int introduced = is_own ? kFirstVersion : entry == nullptr ? 0 : entry->version;
  // A later ABI of the symbol is one that is not served: never the function of another one.
  const bool is_later_abi = entry != nullptr && entry->next_version != 0 && version >= entry->next_version;
  if ((!is_own && entry == nullptr) || is_later_abi) {
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  } else if (version < introduced) {
    *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  } else {
    *status = CU_GET_PROC_ADDRESS_SUCCESS;
    void* per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0 && !is_own
                           ? find_per_thread_function(*entry)
                           : nullptr;
    *function = is_own ? own_address(version) : per_thread != nullptr ? per_thread : entry->function;
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace cistern::simulated
