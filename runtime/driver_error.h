#pragma once

// From a driver's result to an exception, once, at the public edge.
//
// Inside the library a refusal is a value (CUresult). The text names the call, the object
// and the driver's own words. Thread safety: all functions may be called from any thread.

#include "runtime/driver_api.h"

#include <string>

namespace cistern {

// The driver's name and words of a result, e.g. "CUDA_ERROR_INVALID_VALUE (invalid argument)".
[[nodiscard]] std::string driver_words(const DriverApi& api, CUresult result);

// Throws DriverError: "cuMemFree of segment 0x7f2e00000000: CUDA_ERROR_...".
[[noreturn]] void throw_driver_error(const DriverApi& api, CUresult result, DriverEntryId entry,
                                     const std::string& object);

// Throws if `result` is a failure. `describe` gives the object's text, built on failure only.
template <class Describe>
void check_driver(const DriverApi& api, CUresult result, DriverEntryId entry, Describe&& describe) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    throw_driver_error(api, result, entry, describe());
}

}  // namespace cistern
