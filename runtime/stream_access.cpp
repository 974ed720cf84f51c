#include "runtime/stream_access.h"

#include <utility>

#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/process_driver.h"

namespace cistern {

CUresult identify_stream(const DriverApi& api, CUstream handle, StreamIdentity* identity) {
  if (is_legacy(handle)) {
    *identity = {};
    return CUDA_SUCCESS;
  }
  unsigned long long id = 0;
  const CUresult result = api.stream_get_id(handle, &id);
  if (result == CUDA_SUCCESS) *identity = {handle, id};
  return result;
}

StreamIdentity StreamAccess::identity_by_driver(const Stream& stream) {
  const DeviceScope scope(stream.driver_, device(stream));
  StreamIdentity identity;
  check_driver(scope.api(), identify_stream(scope.api(), stream.handle_, &identity), DriverEntryId::stream_get_id,
               [&] { return stream.to_string(); });
  return identity;
}

Stream StreamAccess::on_device(Stream stream, int device) {
  stream.device_ = device;
  return stream;
}

Stream StreamAccess::wrap(const DriverApi& api, StreamIdentity identity, int device, std::shared_ptr<void> owner) {
  Stream stream;
  // A stream of the process's driver is the same stream, whichever way it was made.
  stream.driver_ = process_driver_loaded() && &api == &process_driver() ? nullptr : &api;
  stream.handle_ = is_legacy(identity.handle) ? nullptr : identity.handle;
  // The per-thread stream is another one on each thread: its id is never kept.
  stream.id_ = identity.handle == per_thread_handle() ? 0 : identity.id;
  stream.device_ = device;
  stream.owner_ = std::move(owner);
  return stream;
}

}  // namespace cistern
