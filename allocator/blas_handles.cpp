// A cuBLAS handle for each thread and device, and the memory it works in.

#include <cistern/allocator.h>
#include <cistern/blas.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/cublas.h"
#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/process_driver.h"
#include "runtime/stream_access.h"

namespace cistern {
namespace {

// What NVIDIA recommends ("cuBLAS", cublasSetWorkspace).
std::size_t workspace_bytes(Device device) {
  constexpr std::size_t mebibyte = std::size_t{1} << 20;
  return device_capability(device).major >= 9 ? 32 * mebibyte : 4 * mebibyte;
}

// Handles of threads that have ended, by device: making one takes milliseconds, and destroying it waits for
// the device. Never destroyed itself.
struct IdleHandles {
  std::mutex mutex;
  std::map<int, std::vector<BlasHandle>> by_device;
};
IdleHandles& idle_handles() {
  static IdleHandles& handles = *new IdleHandles;
  return handles;
}

BlasHandle take_handle(const DriverApi& api, int device) {
  IdleHandles& handles = idle_handles();
  {
    const std::lock_guard lock(handles.mutex);
    std::vector<BlasHandle>& idle = handles.by_device[device];
    if (!idle.empty()) {
      const BlasHandle handle = idle.back();
      idle.pop_back();
      return handle;
    }
  }
  return make_blas_handle(api);
}

// What a handle is bound to: another stream, or the same in another capture, is another binding.
struct Binding {
  std::uint64_t stream = 0;
  std::uint64_t capture = 0;  // 0: none
  friend bool operator==(const Binding&, const Binding&) = default;
};

// One thread's handle on one device. At its end the handle goes to other threads, and the memory back, in
// order on the stream that it was bound to.
class ThreadHandle {
 public:
  ThreadHandle(const DriverApi& api, int device) : device_(device), handle_(take_handle(api, device)) {}
  ~ThreadHandle() {
    deallocate(workspace_);
    try {
      IdleHandles& handles = idle_handles();
      const std::lock_guard lock(handles.mutex);
      handles.by_device[device_].push_back(handle_);
    } catch (const std::bad_alloc&) {
      // Nobody can have it then: it is lost, which is no harm.
    }
  }
  ThreadHandle(const ThreadHandle&) = delete;
  ThreadHandle& operator=(const ThreadHandle&) = delete;

  BlasHandle bound_to(const Stream& stream, const Binding& binding) {
    // Each time: the caller may have bound it elsewhere meanwhile.
    if (workspace_ != nullptr && binding == binding_) {
      bind_blas_handle(handle_, stream.native_handle(), workspace_, bytes_);
      return handle_;
    }
    // The old workspace goes last: what throws meanwhile leaves a handle that uses it still.
    const std::size_t bytes = workspace_bytes(Device(device_));
    void* const workspace = allocate(bytes, stream);
    try {
      bind_blas_handle(handle_, stream.native_handle(), workspace, bytes);
    } catch (...) {
      deallocate(workspace);
      throw;
    }
    deallocate(std::exchange(workspace_, workspace));
    bytes_ = bytes;
    binding_ = binding;
    return handle_;
  }

 private:
  int device_;
  BlasHandle handle_;
  void* workspace_ = nullptr;
  std::size_t bytes_ = 0;  // of that
  Binding binding_;
};

Binding binding_of(const DriverApi& api, const Stream& stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t capture = 0;
  check_driver(api, api.stream_get_capture_info(stream.native_handle(), &status, &capture, nullptr, nullptr, nullptr),
               DriverEntryId::stream_get_capture_info, [&] { return stream.to_string(); });
  return {StreamAccess::identity(stream).id, status == CU_STREAM_CAPTURE_STATUS_NONE ? 0 : capture};
}

// By device.
thread_local std::map<int, std::unique_ptr<ThreadHandle>> thread_handles;

}  // namespace

BlasHandle current_blas_handle() {
  const int device = resolve_device({});
  const Stream stream = current_stream(Device(device));
  const DeviceScope scope(nullptr, device);
  std::unique_ptr<ThreadHandle>& handle = thread_handles[device];
  if (handle == nullptr) handle = std::make_unique<ThreadHandle>(scope.api(), device);
  return handle->bound_to(stream, binding_of(scope.api(), stream));
}

}  // namespace cistern
