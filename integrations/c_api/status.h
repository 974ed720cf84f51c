#pragma once

// From exceptions to the statuses of c_api.h, at the border.

#include <cistern/c_api.h>
#include <cistern/stream.h>

#include <cstddef>
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

// Throw InvalidArgument, naming the argument: a result, what is read, and how many members it is said to have, before
// any of them is read.
inline constexpr std::size_t kMostMembers = std::size_t{1} << 20;
void require(const void* result, const char* name);
void require_given(const void* argument, const char* name);
void require_count(std::size_t count, const char* name, std::size_t most = kMostMembers);

// A driver's handle on a device.
[[nodiscard]] Stream stream_of(int device, cistern_stream handle);

}  // namespace cistern::c_api
