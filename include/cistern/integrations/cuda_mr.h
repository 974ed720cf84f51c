#pragma once

// CudaMemoryResource: the process-wide heap of one device as a resource of CCCL's cuda::mr, stream-ordered. RMM's
// containers take it, too.
//
// CCCL renamed the interface in its version 3.1, and the members here have the names of the version that is included:
//
//   before 3.1, stream-ordered   allocate_async(bytes, alignment, stream)
//                                deallocate_async(pointer, bytes, alignment, stream)
//   before 3.1, synchronous      allocate(bytes, alignment)
//                                deallocate(pointer, bytes, alignment)
//   since 3.1, stream-ordered    allocate(stream, bytes, alignment)
//                                deallocate(stream, pointer, bytes, alignment)
//   since 3.1, synchronous       allocate_sync(bytes, alignment)
//                                deallocate_sync(pointer, bytes, alignment)
//
// Stream-ordered memory is for work on `stream` from now on; freed, it may serve that stream at once. Synchronous
// memory may be used on any stream at once: such a request waits for the device's default stream; before such a free
// the caller has waited for all work that uses the memory.
// Alignment is 512 bytes, whatever was asked for up to that. 0 bytes: nullptr. Requests throw InvalidArgument for
// another alignment, and as cistern::allocate; frees never throw: one with another size than the request's, or a handle
// that is no stream, leaves the block as it is, and standard error says so. A resource is a value: it keeps nothing,
// and two of one device are equal. Thread safety: any member, from any thread. Needs CCCL 2.3 or later; before 3.1
// LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE must be defined.

#include <cistern/allocator.h>
#include <cistern/device.h>
#include <cistern/stream.h>
#include <cuda/version>

#if CCCL_VERSION < 3001000 && !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#error "define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE before any header of CCCL: before 3.1 it hides cuda::mr"
#endif

#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <cstddef>

namespace cistern {

class CudaMemoryResource {
 public:
  static constexpr std::size_t kAlignment = 512;

  // "The current device" is the one that is current now.
  explicit CudaMemoryResource(Device device = {}) : device_(device.is_current() ? current_device() : device) {}
  [[nodiscard]] Device device() const noexcept { return device_; }

#if CCCL_VERSION >= 3001000
  [[nodiscard]] void* allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = kAlignment) {
    return allocate_ordered(stream.get(), bytes, alignment);
  }
  void deallocate(cuda::stream_ref stream, void* pointer, std::size_t bytes,
                  std::size_t /*alignment*/ = kAlignment) noexcept {
    deallocate_ordered(stream.get(), pointer, bytes);
  }
  [[nodiscard]] void* allocate_sync(std::size_t bytes, std::size_t alignment = kAlignment) {
    return allocate_for_any_stream(bytes, alignment);
  }
  void deallocate_sync(void* pointer, std::size_t bytes, std::size_t /*alignment*/ = kAlignment) noexcept {
    deallocate_sized(pointer, bytes);
  }
#else
  [[nodiscard]] void* allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) {
    return allocate_ordered(stream.get(), bytes, alignment);
  }
  [[nodiscard]] void* allocate_async(std::size_t bytes, cuda::stream_ref stream) {
    return allocate_ordered(stream.get(), bytes, kAlignment);
  }
  void deallocate_async(void* pointer, std::size_t bytes, std::size_t /*alignment*/, cuda::stream_ref stream) noexcept {
    deallocate_ordered(stream.get(), pointer, bytes);
  }
  void deallocate_async(void* pointer, std::size_t bytes, cuda::stream_ref stream) noexcept {
    deallocate_ordered(stream.get(), pointer, bytes);
  }
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = kAlignment) {
    return allocate_for_any_stream(bytes, alignment);
  }
  void deallocate(void* pointer, std::size_t bytes, std::size_t /*alignment*/ = kAlignment) noexcept {
    deallocate_sized(pointer, bytes);
  }
#endif

  friend bool operator==(const CudaMemoryResource& a, const CudaMemoryResource& b) noexcept {
    return a.device_ == b.device_;
  }
  friend bool operator!=(const CudaMemoryResource& a, const CudaMemoryResource& b) noexcept { return !(a == b); }
  friend constexpr void get_property(const CudaMemoryResource&, cuda::mr::device_accessible) noexcept {}

 private:
  [[nodiscard]] void* allocate_ordered(StreamHandle stream, std::size_t bytes, std::size_t alignment) const {
    return allocate_aligned(bytes, alignment, Stream::external(stream, device_));
  }
  void deallocate_ordered(StreamHandle stream, void* pointer, std::size_t bytes) const noexcept {
    deallocate_sized(pointer, bytes, stream, device_);
  }
  [[nodiscard]] void* allocate_for_any_stream(std::size_t bytes, std::size_t alignment) const {
    const Stream stream = default_stream(device_);
    void* const pointer = allocate_aligned(bytes, alignment, stream);
    if (pointer == nullptr) return pointer;
    try {
      stream.synchronize();  // what used the memory before is done
    } catch (...) {
      cistern::deallocate(pointer);
      throw;
    }
    return pointer;
  }

  Device device_;
};

}  // namespace cistern
