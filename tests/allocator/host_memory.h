#pragma once

// The host's memory, which a test takes away from a thread. For programs of their own: malloc,
// operator new and mmap are replaced.

#include <cstddef>

namespace cistern::testing_host {

// While it is set every malloc, operator new and mmap of this thread fails.
extern thread_local bool is_gone;
// So many are served although it is set.
extern thread_local int served_requests_left;
// How many were refused.
extern thread_local int refused_requests;
// Bytes that this thread has of operator new, and the most that it had since that was set.
extern thread_local std::size_t bytes_in_use;
extern thread_local std::size_t most_in_use;

}  // namespace cistern::testing_host
