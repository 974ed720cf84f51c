#pragma once

// Whether this process was forked from one that had loaded the process's driver, which does not work here. Asked on the
// path of every request: one load.
//
// Thread safety: any thread; set once, in the child, before it has a second one.

#include <atomic>

namespace cistern {

inline std::atomic<bool> driver_lost_in_fork{false};

}  // namespace cistern
