#pragma once

// From exceptions to the statuses of c_api.h, at the border.

#include <cistern/c_api.h>
#include <cistern/stream.h>

#include <utility>

namespace cistern::c_api {

// The status of the exception that is being handled; keeps its words for cistern_last_error.
cistern_status status_of_exception() noexcept;

// Runs what a function of C does.
template <class Body>
cistern_status guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return CISTERN_SUCCESS;
  } catch (...) {
    return status_of_exception();
  }
}

// Throws InvalidArgument, naming the argument.
void require(const void* result, const char* name);

// A driver's handle on a device.
[[nodiscard]] Stream stream_of(int device, cistern_stream handle);

}  // namespace cistern::c_api
