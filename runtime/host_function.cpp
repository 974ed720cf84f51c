#include "runtime/host_function.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "runtime/deferred_destruction.h"
#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/queued_functions.h"
#include "runtime/stream_access.h"

namespace cistern {
namespace {

// What a stream's capture records into; null for a stream that does not capture.
CUgraph graph_of_capture(const DriverApi& api, const Stream& stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUresult result = api.stream_get_capture_info(stream.native_handle(), &status, &id, &graph, nullptr, nullptr);
  drop_functions_after(result, StreamAccess::driver(stream), StreamAccess::device(stream));
  check_driver(api, result, DriverEntryId::stream_get_capture_info, [&] { return stream.to_string(); });
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? graph : nullptr;
}

// Gives the box to the graph, which destroys it when the graph, what was instantiated of it and
// their launches have all ended. One reference, the graph's.
void give_to_graph(const DriverApi& api, CUgraph graph, std::unique_ptr<HostFunction> box, const Stream& stream) {
  CUuserObject object = nullptr;
  check_driver(
      api, api.user_object_create(&object, box.get(), destroy_host_function, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
      DriverEntryId::user_object_create, [&] { return fmt::format("a host function on {}", stream.to_string()); });
  static_cast<void>(box.release());
  const CUresult result = api.graph_retain_user_object(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
  if (result == CUDA_SUCCESS) return;
  static_cast<void>(api.user_object_release(object, 1));
  throw_driver_error(api, result, DriverEntryId::graph_retain_user_object, stream.to_string());
}

}  // namespace

void CUDA_CB run_host_function_once(void* number) noexcept {
  const HostFunctionScope scope;
  if (const HostFunction function = take_function(reinterpret_cast<std::uintptr_t>(number))) function();
}

void CUDA_CB run_host_function(void* box) noexcept {
  const HostFunctionScope scope;
  (*static_cast<HostFunction*>(box))();
}

void CUDA_CB destroy_host_function(void* box) noexcept {
  // Where the driver calls this it allows no driver call either.
  const HostFunctionScope scope;
  delete static_cast<HostFunction*>(box);
}

void CUDA_CB run_host_callback(CUstream, CUresult status, void* box) noexcept {
  const HostFunctionScope scope;
  const std::unique_ptr<HostCallback> callback(static_cast<HostCallback*>(box));
  callback->function(callback->stream, static_cast<int>(status), callback->user_data);
}

void Stream::launch_host_func(std::function<void()> function) const {
  if (!function) throw InvalidArgument(fmt::format("launch_host_func on {}: the function is empty", to_string()));
  const int device = StreamAccess::device(*this);
  const DeviceScope scope(driver_, device);
  const DriverApi& api = scope.api();
  const auto describe = [this] { return to_string(); };
  if (const CUgraph graph = graph_of_capture(api, *this); graph != nullptr) {
    auto box = std::make_unique<HostFunction>(std::move(function));
    HostFunction* const held = box.get();
    // Before it is queued: a failure then leaves a graph that holds a function too many, no worse.
    give_to_graph(api, graph, std::move(box), *this);
    check_driver(api, api.launch_host_func(handle_, run_host_function, held), DriverEntryId::launch_host_func,
                 describe);
    return;
  }
  const std::uint64_t number = keep_function(driver_, device, std::move(function));
  const CUresult result = api.launch_host_func(handle_, run_host_function_once, reinterpret_cast<void*>(number));
  if (result == CUDA_SUCCESS) return;
  static_cast<void>(take_function(number));
  drop_functions_after(result, driver_, device);
  throw_driver_error(api, result, DriverEntryId::launch_host_func, describe());
}

void Stream::launch_host_func(std::function<void(void*)> function, void* user_data) const {
  if (!function) throw InvalidArgument(fmt::format("launch_host_func on {}: the function is empty", to_string()));
  launch_host_func([function = std::move(function), user_data] { function(user_data); });
}

void Stream::add_callback(StreamCallback callback, void* user_data) const {
  if (!callback) throw InvalidArgument(fmt::format("add_callback on {}: the callback is empty", to_string()));
  if (is_capturing() != CaptureStatus::none)
    throw NotSupported(fmt::format(
        "add_callback on {}, which is capturing: expected launch_host_func, which a graph can record", to_string()));
  const DeviceScope scope(driver_, StreamAccess::device(*this));
  auto box = std::make_unique<HostCallback>(HostCallback{std::move(callback), user_data, *this});
  box->stream.owner_.reset();
  check_driver(scope.api(), scope.api().stream_add_callback(handle_, run_host_callback, box.get(), 0),
               DriverEntryId::stream_add_callback, [this] { return to_string(); });
  static_cast<void>(box.release());
}

}  // namespace cistern
