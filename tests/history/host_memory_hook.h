#pragma once

// Calls a function of the test's at each request for host memory, and at each return, by the threads
// that ask for it. For a program of its own: operator new and mmap are replaced.

namespace cistern::testing_host {

// Called while `watches` is set for the calling thread; what it does itself is not watched.
extern void (*on_use)();
extern thread_local bool watches;

}  // namespace cistern::testing_host
