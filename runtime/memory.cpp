#include <cistern/error.h>
#include <cistern/memory.h>
#include <fmt/format.h>

#include <limits>

#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/process_driver.h"
#include "runtime/stream_access.h"

namespace cistern {
namespace {

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

void require_addresses(const char* operation, const void* destination, const void* source, std::size_t bytes) {
  if (destination == nullptr || source == nullptr)
    throw InvalidArgument(fmt::format("{} of {} bytes from {} to {}: expected two addresses that are not null",
                                      operation, bytes, source, destination));
}

// The destination of `count` values of `size` bytes each.
void require_fill(const void* destination, std::size_t size, std::size_t count) {
  if (destination == nullptr)
    throw InvalidArgument(fmt::format("fill of {} values: the address is null; expected device memory", count));
  if (address(destination) % size != 0)
    throw InvalidArgument(fmt::format("fill at {}: expected a multiple of {}, the size of a value", destination, size));
  if (count > std::numeric_limits<std::size_t>::max() / size)
    throw InvalidArgument(
        fmt::format("fill of {} values of {} bytes: expected no more than the address space has", count, size));
}

std::string describe_fill(const void* destination, std::size_t bytes, unsigned long value, const Stream& stream) {
  return fmt::format("{} bytes at {} to {} on {}", bytes, destination, value, stream.to_string());
}

// Another driver's streams have devices of their own, by plain numbers.
int device_for(const DriverApi* driver, Device device) {
  return driver == nullptr || device.is_current() ? resolve_device(device) : device.index();
}

}  // namespace

void copy_async(void* destination, const void* source, std::size_t bytes, const Stream& stream) {
  if (bytes == 0) return;
  require_addresses("copy_async", destination, source, bytes);
  const DeviceScope scope(StreamAccess::driver(stream), StreamAccess::device(stream));
  check_driver(
      scope.api(), scope.api().memcpy_async(address(destination), address(source), bytes, stream.native_handle()),
      DriverEntryId::memcpy_async,
      [&] { return fmt::format("{} bytes from {} to {} on {}", bytes, source, destination, stream.to_string()); });
}

void copy(void* destination, const void* source, std::size_t bytes) {
  if (bytes == 0) return;
  require_addresses("copy", destination, source, bytes);
  const DeviceScope scope(nullptr, resolve_device({}));
  check_driver(scope.api(), scope.api().memcpy(address(destination), address(source), bytes), DriverEntryId::memcpy,
               [&] { return fmt::format("{} bytes from {} to {}", bytes, source, destination); });
}

void copy_peer_async(void* destination, Device destination_device, const void* source, Device source_device,
                     std::size_t bytes, const Stream& stream) {
  const DriverApi* const driver = StreamAccess::driver(stream);
  const int to = device_for(driver, destination_device);
  const int from = device_for(driver, source_device);
  if (bytes == 0) return;
  require_addresses("copy_peer_async", destination, source, bytes);
  const PrimaryContext to_context(driver, to);
  const PrimaryContext from_context(driver, from);
  const DeviceScope scope(driver, StreamAccess::device(stream));
  check_driver(scope.api(),
               scope.api().memcpy_peer_async(address(destination), to_context.get(), address(source),
                                             from_context.get(), bytes, stream.native_handle()),
               DriverEntryId::memcpy_peer_async, [&] {
                 return fmt::format("{} bytes from {} on device {} to {} on device {} on {}", bytes, source, from,
                                    destination, to, stream.to_string());
               });
}

void fill_async(void* destination, unsigned char value, std::size_t bytes, const Stream& stream) {
  if (bytes == 0) return;
  require_fill(destination, sizeof value, bytes);
  const DeviceScope scope(StreamAccess::driver(stream), StreamAccess::device(stream));
  check_driver(scope.api(), scope.api().memset_d8_async(address(destination), value, bytes, stream.native_handle()),
               DriverEntryId::memset_d8_async, [&] { return describe_fill(destination, bytes, value, stream); });
}

void fill16_async(void* destination, std::uint16_t value, std::size_t count, const Stream& stream) {
  if (count == 0) return;
  require_fill(destination, sizeof value, count);
  const DeviceScope scope(StreamAccess::driver(stream), StreamAccess::device(stream));
  check_driver(scope.api(), scope.api().memset_d16_async(address(destination), value, count, stream.native_handle()),
               DriverEntryId::memset_d16_async,
               [&] { return describe_fill(destination, count * sizeof value, value, stream); });
}

void fill32_async(void* destination, std::uint32_t value, std::size_t count, const Stream& stream) {
  if (count == 0) return;
  require_fill(destination, sizeof value, count);
  const DeviceScope scope(StreamAccess::driver(stream), StreamAccess::device(stream));
  check_driver(scope.api(), scope.api().memset_d32_async(address(destination), value, count, stream.native_handle()),
               DriverEntryId::memset_d32_async,
               [&] { return describe_fill(destination, count * sizeof value, value, stream); });
}

}  // namespace cistern
