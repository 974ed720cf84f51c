#include "runtime/strided.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/stream_access.h"
#include "runtime/strided_kernels.h"
#include "runtime/strided_values.h"

namespace cistern {
namespace {

const char* name_of(StridedOperation operation) {
  return operation == StridedOperation::add ? "strided sum" : "strided copy";
}

}  // namespace

void queue_strided(StridedWork work, const Stream& stream) {
  if (work.count == 0) return;
  simplify(work);
  const DeviceScope scope(StreamAccess::driver(stream), StreamAccess::device(stream));
  const DriverApi& api = scope.api();
  if (!api.strided) return launch_strided(api, work, stream.native_handle());
  const CUresult result = api.strided(work, stream.native_handle());
  if (result == CUDA_SUCCESS) return;
  throw DriverError(result, name_of(work.operation),
                    fmt::format("{} of {} elements from {:#x} to {:#x} on {}: {}", name_of(work.operation), work.count,
                                work.source, work.destination, stream.to_string(), driver_words(api, result)));
}

}  // namespace cistern
