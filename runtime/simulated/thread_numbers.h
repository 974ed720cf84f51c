#pragma once

// Numbers for threads: what the drivers keep for a thread goes by its number, until it ends.
//
// Thread safety: may be called from any thread, also while the thread or the process ends.

#include <cstdint>

namespace cistern::simulated {

// The calling thread's: never used again in a process, unlike its id. When a thread with a
// number ends, after its thread-local objects, the live drivers forget it (forget_thread).
[[nodiscard]] std::uint64_t this_thread_number() noexcept;

}  // namespace cistern::simulated
