// PinnedMemory: an owner of host memory, from the process's host heap.

#include <cistern/error.h>
#include <cistern/host_allocator.h>
#include <cistern/host_memory.h>
#include <fmt/format.h>

#include <utility>

#include "runtime/deferred_destruction.h"
#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/host_memory.h"
#include "runtime/process_driver.h"

namespace cistern {
namespace {

// Not cached: hardly anything may read it, so it is no memory for others.
void* allocate_write_combined(std::size_t bytes, int device) {
  destroy_deferred();
  const DeviceScope scope(nullptr, device);
  void* made = nullptr;
  constexpr unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  check_driver(scope.api(), scope.api().mem_host_alloc(&made, bytes, flags), DriverEntryId::mem_host_alloc,
               [&] { return fmt::format("{} bytes of host memory on device {}", bytes, device); });
  return made;
}

}  // namespace

PinnedMemory::PinnedMemory(std::size_t bytes, PinnedMemoryOptions options, Device device) : options_(options) {
  device_ = resolve_device(device);
  if (bytes == 0) return;
  data_ = options.write_combined ? allocate_write_combined(bytes, device_) : allocate_host(bytes, device_);
  size_ = bytes;
}

PinnedMemory::~PinnedMemory() { reset(); }

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      options_(other.options_),
      device_(other.device_) {}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    options_ = other.options_;
    device_ = other.device_;
  }
  return *this;
}

void* PinnedMemory::device_pointer(Device device) const {
  return mapped_address(data_, size_, options_.mapped, device);
}

void PinnedMemory::reset() noexcept {
  if (data_ != nullptr && options_.write_combined) free_host_memory(device_, data_);
  if (data_ != nullptr && !options_.write_combined) deallocate_host(data_);
  data_ = nullptr;
  size_ = 0;
}

}  // namespace cistern
