// Entries that put a result into words.

#include <algorithm>
#include <array>

#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {
namespace {

struct ErrorWords {
  CUresult error;
  const char* name;
  const char* text;
};

#define CISTERN_ERROR(error, text) \
  ErrorWords { error, #error, text }

constexpr std::array kErrors = {
    CISTERN_ERROR(CUDA_SUCCESS, "no error"),
    CISTERN_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    CISTERN_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    CISTERN_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    CISTERN_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    CISTERN_ERROR(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
    CISTERN_ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    CISTERN_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    CISTERN_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    CISTERN_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    CISTERN_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    CISTERN_ERROR(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    CISTERN_ERROR(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed"),
    CISTERN_ERROR(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped"),
    CISTERN_ERROR(CUDA_ERROR_NOT_MAPPED, "resource not mapped"),
    CISTERN_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    CISTERN_ERROR(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture"),
    CISTERN_ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    CISTERN_ERROR(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid"),
    CISTERN_ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    CISTERN_ERROR(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    CISTERN_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    CISTERN_ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    CISTERN_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    CISTERN_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    CISTERN_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    CISTERN_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    CISTERN_ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    CISTERN_ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    CISTERN_ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    CISTERN_ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process"),
    CISTERN_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    CISTERN_ERROR(CUDA_ERROR_ASSERT, "device-side assert triggered"),
    CISTERN_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                  "part or all of the requested memory range is already mapped"),
    CISTERN_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
    CISTERN_ERROR(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
    CISTERN_ERROR(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"),
    CISTERN_ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    CISTERN_ERROR(CUDA_ERROR_INVALID_ADDRESS_SPACE, "operation not supported on global/shared address space"),
    CISTERN_ERROR(CUDA_ERROR_INVALID_PC, "invalid program counter"),
    CISTERN_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    CISTERN_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    CISTERN_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    CISTERN_ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    CISTERN_ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination"),
    CISTERN_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    CISTERN_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    CISTERN_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"),
    CISTERN_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    CISTERN_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    CISTERN_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
    CISTERN_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                  "operation would make the legacy stream depend on a capturing blocking stream"),
    CISTERN_ERROR(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
    CISTERN_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
                  "attempt to terminate a thread-local capture sequence from another thread"),
    CISTERN_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                  "the graph update was not performed because it included changes which violated constraints specific "
                  "to instantiated graph update"),
    CISTERN_ERROR(CUDA_ERROR_TIMEOUT, "wait operation timed out"),
    CISTERN_ERROR(CUDA_ERROR_EXTERNAL_DEVICE, "an async error has occured in external entity outside of CUDA"),
    CISTERN_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};

#undef CISTERN_ERROR

const ErrorWords* find_words(CUresult error) {
  const auto* found =
      std::find_if(kErrors.begin(), kErrors.end(), [&](const ErrorWords& words) { return words.error == error; });
  return found == kErrors.end() ? nullptr : found;
}

}  // namespace

CUresult DriverState::get_error_name(CUresult error, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorWords* words = find_words(error);
  *name = words == nullptr ? nullptr : words->name;
  return words == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult DriverState::get_error_string(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorWords* words = find_words(error);
  *text = words == nullptr ? nullptr : words->text;
  return words == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace cistern::simulated
