#include <cistern/memory.h>
#include <fmt/format.h>

#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/stream_access.h"

namespace cistern {
namespace {

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

void copy_async(void* destination, const void* source, std::size_t bytes, const Stream& stream) {
  if (bytes == 0) return;
  const DeviceScope scope(StreamAccess::driver(stream), StreamAccess::device(stream));
  check_driver(
      scope.api(), scope.api().memcpy_async(address(destination), address(source), bytes, stream.native_handle()),
      DriverEntryId::memcpy_async,
      [&] { return fmt::format("{} bytes from {} to {} on {}", bytes, source, destination, stream.to_string()); });
}

void fill_async(void* destination, unsigned char value, std::size_t bytes, const Stream& stream) {
  if (bytes == 0) return;
  const DeviceScope scope(StreamAccess::driver(stream), StreamAccess::device(stream));
  check_driver(scope.api(), scope.api().memset_d8_async(address(destination), value, bytes, stream.native_handle()),
               DriverEntryId::memset_d8_async, [&] {
                 return fmt::format("{} bytes at {} to {} on {}", bytes, destination, value, stream.to_string());
               });
}

}  // namespace cistern
