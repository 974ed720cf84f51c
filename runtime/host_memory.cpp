#include "runtime/host_memory.h"

#include <cistern/error.h>
#include <cistern/host_memory.h>
#include <fmt/format.h>

#include <utility>

#include "runtime/deferred_destruction.h"
#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/process_driver.h"

namespace cistern {
namespace {

std::string describe(const void* pointer, std::size_t bytes) {
  return fmt::format("{} bytes of host memory at {}", bytes, pointer);
}

}  // namespace

void* mapped_address(void* pointer, std::size_t bytes, bool mapped, Device device) {
  if (pointer == nullptr) throw InvalidArgument("device_pointer of no host memory: expected memory that is mapped");
  if (!mapped)
    throw InvalidArgument(
        fmt::format("device_pointer of {}: it is not mapped; expected the option `mapped`", describe(pointer, bytes)));
  const DeviceScope scope(nullptr, resolve_device(device));
  CUdeviceptr address = 0;
  check_driver(scope.api(), scope.api().mem_host_get_device_pointer(&address, pointer, 0),
               DriverEntryId::mem_host_get_device_pointer, [&] { return describe(pointer, bytes); });
  return reinterpret_cast<void*>(address);
}

HostRegistration::HostRegistration(void* pointer, std::size_t bytes, RegistrationOptions options, Device device)
    : options_(options) {
  if (pointer == nullptr || bytes == 0)
    throw InvalidArgument(
        fmt::format("registration of {}: expected memory and more than 0 bytes of it", describe(pointer, bytes)));
  device_ = resolve_device(device);
  if (!device_capabilities(device_).host_registration)
    throw NotSupported(
        fmt::format("registration of {}: device {} has no registered host memory", describe(pointer, bytes), device_));
  unsigned flags = 0;
  if (options.portable) flags |= CU_MEMHOSTREGISTER_PORTABLE;
  if (options.mapped) flags |= CU_MEMHOSTREGISTER_DEVICEMAP;
  if (options.read_only) flags |= CU_MEMHOSTREGISTER_READ_ONLY;
  destroy_deferred();
  const DeviceScope scope(nullptr, device_);
  check_driver(scope.api(), scope.api().mem_host_register(pointer, bytes, flags), DriverEntryId::mem_host_register,
               [&] { return describe(pointer, bytes); });
  data_ = pointer;
  size_ = bytes;
}

HostRegistration::~HostRegistration() { reset(); }

HostRegistration::HostRegistration(HostRegistration&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      options_(other.options_),
      device_(other.device_) {}

HostRegistration& HostRegistration::operator=(HostRegistration&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    options_ = other.options_;
    device_ = other.device_;
  }
  return *this;
}

void* HostRegistration::device_pointer(Device device) const {
  return mapped_address(data_, size_, options_.mapped, device);
}

void HostRegistration::reset() noexcept {
  if (data_ != nullptr) unregister_host_memory(device_, data_);
  data_ = nullptr;
  size_ = 0;
}

}  // namespace cistern
