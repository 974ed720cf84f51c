#include "runtime/deferred_destruction.h"

#include <cistern/error.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/device_scope.h"
#include "runtime/process_driver.h"
#include "runtime/stream_ends.h"

namespace cistern {
namespace {

struct HostAllocation {
  void* memory;
};
struct LockedPages {
  void* memory;
};
using Object = std::variant<CUstream, CUevent, CUgraph, CUgraphExec, HostAllocation, LockedPages>;
struct Waiting {
  Object object;
  int device;
};

// Never destroyed: host functions may still run while the process ends.
struct Queue {
  std::mutex mutex;
  std::vector<Waiting> objects;
  std::vector<std::function<void()>> ends;
};
Queue& queue() {
  static Queue& queue = *new Queue;
  return queue;
}
std::atomic<bool> something_waits{false};
thread_local int host_functions = 0;

CUresult destroy(const DriverApi& api, CUstream stream) { return api.stream_destroy(stream); }
CUresult destroy(const DriverApi& api, CUevent event) { return api.event_destroy(event); }
CUresult destroy(const DriverApi& api, CUgraph graph) { return api.graph_destroy(graph); }
CUresult destroy(const DriverApi& api, CUgraphExec exec) { return api.graph_exec_destroy(exec); }
CUresult destroy(const DriverApi& api, HostAllocation allocation) { return api.mem_free_host(allocation.memory); }
CUresult destroy(const DriverApi& api, LockedPages pages) { return api.mem_host_unregister(pages.memory); }

// False if the driver says that this is no place for it. Host functions that were not queued
// through cistern, and a user's kernels on the simulated driver, are known by that answer alone.
bool try_to_destroy(const DriverApi* driver, int device, const Object& object) {
  if (host_functions > 0) return false;
  try {
    const DeviceScope scope(driver, device);
    // While the handle still means the stream.
    if (const CUstream* stream = std::get_if<CUstream>(&object); stream != nullptr && driver == nullptr) {
      announce_stream_end(scope.api(), *stream, device);
      process_contexts().known_streams().remove(*stream);
    }
    return std::visit([&](auto handle) { return destroy(scope.api(), handle); }, object) != CUDA_ERROR_NOT_PERMITTED;
  } catch (const DriverError& error) {
    return error.code() != CUDA_ERROR_NOT_PERMITTED;
  } catch (const Error&) {
    return true;
  }
}

void destroy_now_or_later(const DriverApi* driver, int device, Object object) noexcept {
  try {
    if (try_to_destroy(driver, device, object) || driver != nullptr) return;
    Queue& waiting = queue();
    const std::lock_guard lock(waiting.mutex);
    waiting.objects.push_back({object, device});
    something_waits.store(true, std::memory_order_release);
  } catch (...) {
    // No host memory to remember it by: the object stays until the process ends.
  }
}

// Asked by a call that does nothing. Where the driver is gone it forbids nothing.
bool forbids_calls(const DriverApi& driver) {
  CUcontext context = nullptr;
  return host_functions > 0 || driver.ctx_get_current(&context) == CUDA_ERROR_NOT_PERMITTED;
}

}  // namespace

HostFunctionScope::HostFunctionScope() noexcept { ++host_functions; }
HostFunctionScope::~HostFunctionScope() { --host_functions; }

void destroy_on_device(const DriverApi* driver, int device, CUstream stream) noexcept {
  destroy_now_or_later(driver, device, stream);
}
void destroy_on_device(const DriverApi* driver, int device, CUevent event) noexcept {
  destroy_now_or_later(driver, device, event);
}
void destroy_on_device(const DriverApi* driver, int device, CUgraph graph) noexcept {
  destroy_now_or_later(driver, device, graph);
}
void destroy_on_device(const DriverApi* driver, int device, CUgraphExec exec) noexcept {
  destroy_now_or_later(driver, device, exec);
}
void free_host_memory(int device, void* memory) noexcept {
  destroy_now_or_later(nullptr, device, HostAllocation{memory});
}
void unregister_host_memory(int device, void* memory) noexcept {
  destroy_now_or_later(nullptr, device, LockedPages{memory});
}

void end_now_or_later(const DriverApi& driver, std::function<void()> end) noexcept {
  if (!forbids_calls(driver)) return end();
  try {
    Queue& waiting = queue();
    const std::lock_guard lock(waiting.mutex);
    waiting.ends.push_back(std::move(end));
    something_waits.store(true, std::memory_order_release);
  } catch (...) {
    // No host memory to remember it by: what it was to end stays until the process ends.
  }
}

void destroy_deferred() noexcept {
  if (!something_waits.load(std::memory_order_acquire) || host_functions > 0) return;
  std::vector<Waiting> objects;
  std::vector<std::function<void()>> ends;
  {
    Queue& waiting = queue();
    const std::lock_guard lock(waiting.mutex);
    objects = std::exchange(waiting.objects, {});
    ends = std::exchange(waiting.ends, {});
    something_waits.store(false, std::memory_order_release);
  }
  for (const Waiting& waiting : objects) destroy_now_or_later(nullptr, waiting.device, waiting.object);
  for (const std::function<void()>& end : ends) end();
}

}  // namespace cistern
