#pragma once

// Owners of device memory of the size of a pointer: std::unique_ptr whose memory is a block of the process-wide heap.
//
//   auto weights = cistern::make_device_unique<float[]>(count, stream);   // uninitialised
//   kernel<<<..., stream>>>(weights.get());
//
// Freed in stream order on the block's own stream; what else used it is told by record_stream. The host never reads
// what it points to: `*p` and `p[i]` are for code that runs on the device.
// Thread safety: as std::unique_ptr. Errors: those of allocate; std::bad_array_new_length.

#include <cistern/allocator.h>
#include <cistern/stream.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>

namespace cistern {

// Frees as cistern::deallocate does: never throws, never waits.
template <class T>
struct DeviceDelete {
  static_assert(std::is_trivially_copyable<std::remove_extent_t<T>>::value,
                "device memory holds trivially copyable values");
  void operator()(std::remove_extent_t<T>* pointer) const noexcept { deallocate(pointer); }
};

template <class T>
using DeviceUniquePtr = std::unique_ptr<T, DeviceDelete<T>>;

// One value, uninitialised, for work on `stream`, by default the current one.
template <class T, class = std::enable_if_t<!std::is_array<T>::value>>
[[nodiscard]] DeviceUniquePtr<T> make_device_unique(const Stream& stream = current_stream()) {
  return DeviceUniquePtr<T>(static_cast<T*>(allocate(sizeof(T), stream)));
}

// `count` values, uninitialised; none: an empty pointer.
template <class T, class = std::enable_if_t<std::is_array<T>::value && std::extent<T>::value == 0>>
[[nodiscard]] DeviceUniquePtr<T> make_device_unique(std::size_t count, const Stream& stream = current_stream()) {
  using Value = std::remove_extent_t<T>;
  if (count > std::numeric_limits<std::size_t>::max() / sizeof(Value)) throw std::bad_array_new_length();
  return DeviceUniquePtr<T>(static_cast<Value*>(allocate(count * sizeof(Value), stream)));
}

}  // namespace cistern
