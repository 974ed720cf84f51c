#include <cistern/integrations/pmr.h>

#include <algorithm>

namespace cistern {
namespace {

// The standard's resources give no null pointers, whatever is asked for.
std::size_t some(std::size_t bytes) { return std::max<std::size_t>(bytes, 1); }

}  // namespace

PinnedMemoryResource::PinnedMemoryResource(Device device) : device_(device.is_current() ? current_device() : device) {}

PinnedMemoryResource::~PinnedMemoryResource() = default;

void* PinnedMemoryResource::do_allocate(std::size_t bytes, std::size_t alignment) {
  return allocate_host_aligned(some(bytes), alignment, device_);
}

void PinnedMemoryResource::do_deallocate(void* pointer, std::size_t bytes, std::size_t /*alignment*/) {
  deallocate_host_sized(pointer, some(bytes));
}

bool PinnedMemoryResource::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  return dynamic_cast<const PinnedMemoryResource*>(&other) != nullptr;
}

ManagedMemoryResource::ManagedMemoryResource(Device device)
    : device_(device.is_current() ? current_device() : device) {}

ManagedMemoryResource::~ManagedMemoryResource() = default;

void* ManagedMemoryResource::do_allocate(std::size_t bytes, std::size_t alignment) {
  return allocate_managed_aligned(some(bytes), alignment, device_);
}

void ManagedMemoryResource::do_deallocate(void* pointer, std::size_t bytes, std::size_t /*alignment*/) {
  deallocate_managed_sized(pointer, some(bytes));
}

bool ManagedMemoryResource::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  return dynamic_cast<const ManagedMemoryResource*>(&other) != nullptr;
}

}  // namespace cistern
