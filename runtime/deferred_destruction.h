#pragma once

// Destroys driver objects whose last owner ended where no driver call is allowed.
//
// A host function may hold the last copy of a Stream, an Event, a Graph or page-locked memory, and the driver forbids
// calls inside of one (CUDA Driver API, cuLaunchHostFunc). Such an object waits for the next call
// outside that makes one of its kind or synchronises. Only objects of the process's driver, which
// lives for ever, wait; those of another are its own to end. Ends that are more than one call wait
// as functions, which know themselves whether there is anything left to do.
// Thread safety: all functions may be called from any thread; none throws.

#include "runtime/driver_api.h"

#include <functional>

namespace cistern {

// Marks this thread as one that runs a host function, for a scope.
class HostFunctionScope {
 public:
  HostFunctionScope() noexcept;
  ~HostFunctionScope();
  HostFunctionScope(const HostFunctionScope&) = delete;
  HostFunctionScope& operator=(const HostFunctionScope&) = delete;
};

// Destroys the object on `device`, now or later. `driver`: null for the process's own. A refusal
// is ignored: the driver or the context is gone, and the object with it; or this is a forked child,
// and the object is the parent's.
void destroy_on_device(const DriverApi* driver, int device, CUstream stream) noexcept;
void destroy_on_device(const DriverApi* driver, int device, CUevent event) noexcept;
void destroy_on_device(const DriverApi* driver, int device, CUgraph graph) noexcept;
void destroy_on_device(const DriverApi* driver, int device, CUgraphExec exec) noexcept;
// Of the process's driver: frees what cuMemHostAlloc gave, unlocks what cuMemHostRegister locked.
void free_host_memory(int device, void* memory) noexcept;
void unregister_host_memory(int device, void* memory) noexcept;

// Runs `end`, now or later: what an object's end does that is more than one call. Later if this thread runs
// a host function, or the driver forbids calls here; `end` must not throw.
void end_now_or_later(const DriverApi& driver, std::function<void()> end) noexcept;

// Destroys what waits. Costs one load where nothing does.
void destroy_deferred() noexcept;

}  // namespace cistern
