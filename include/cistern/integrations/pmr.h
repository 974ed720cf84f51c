#pragma once

// PinnedMemoryResource and ManagedMemoryResource: page-locked host memory, and managed memory, for the containers of
// std::pmr.
//
//   cistern::PinnedMemoryResource pinned;
//   std::pmr::vector<float> batch(count, &pinned);   // copies from it to the device run in stream order
//
// They are doors to allocate_host (host_allocator.h) and allocate_managed (managed_memory.h), which keep what is given
// back: no pool of the standard library is needed above. All resources of a kind are equal: what one allocated another
// may free.
// Thread safety: any member may be called from any thread.

#include <cistern/device.h>
#include <cistern/export.h>
#include <cistern/host_allocator.h>
#include <cistern/managed_memory.h>

#include <cstddef>
#include <memory_resource>

namespace cistern {

class CISTERN_EXPORT PinnedMemoryResource final : public std::pmr::memory_resource {
 public:
  // `device`: next to which the memory is; "the current device" is the one that is current now.
  explicit PinnedMemoryResource(Device device = {});
  ~PinnedMemoryResource() override;

 private:
  // 0 bytes get a block, too. Throws as allocate_host_aligned does.
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  // Never throws. What is no live host block, or was not asked for with so many bytes, stays as it is, and standard
  // error says so. Work that is queued must be told of by record_host_stream, or be done.
  void do_deallocate(void* pointer, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  Device device_;
};

// The same for managed memory.
class CISTERN_EXPORT ManagedMemoryResource final : public std::pmr::memory_resource {
 public:
  // `device`: in whose context it is allocated.
  explicit ManagedMemoryResource(Device device = {});
  ~ManagedMemoryResource() override;

 private:
  // As PinnedMemoryResource's.
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* pointer, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  Device device_;
};

}  // namespace cistern
