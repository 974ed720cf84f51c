#pragma once

// From exceptions to the statuses of c_api.h, at the border.

#include <cistern/c_api.h>
#include <cistern/error.h>
#include <cistern/stream.h>

#include <cstddef>
#include <string>
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

// A driver's handle on a device: the Stream itself where cistern_stream_create made it, which what holds a copy keeps.
[[nodiscard]] Stream stream_of(int device, cistern_stream handle);
// The same for a call that keeps nothing of it: without its owner, and without a lock that others take too.
[[nodiscard]] Stream request_stream_of(int device, cistern_stream handle);

// Writes a text as cistern_list_gpu_processes does: `require_room` before anything is done.
void require_room(const char* text, std::size_t bytes, const std::size_t* needed);
void write_text(const std::string& all, char* text, std::size_t bytes, std::size_t* needed) noexcept;

// As C has it, and that of this thread's latest failure; null if there was none.
[[nodiscard]] cistern_out_of_memory_report report_of(const OutOfMemoryReport& report) noexcept;
[[nodiscard]] const cistern_out_of_memory_report* last_out_of_memory() noexcept;

}  // namespace cistern::c_api
