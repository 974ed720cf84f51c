#pragma once

// ThrustAllocator<T>: the process-wide heap for Thrust's vectors and for its algorithms' temporary memory.
//
//   thrust::device_vector<float, cistern::ThrustAllocator<float>> keys(count, cistern::ThrustAllocator<float>(stream));
//   cistern::ThrustAllocator<char> scratch(stream);
//   thrust::sort(thrust::cuda::par_nosync(scratch).on(stream), keys.begin(), keys.end());
//
// Memory is allocated and freed in order on the allocator's stream, which should be that of the policy. The vector's
// own construction and copies run where Thrust puts them, on its default stream, which is ordered with blocking
// streams alone: construct with thrust::no_init, or synchronise, where the stream is non-blocking.
// Allocators are equal if their streams are. Thread safety: a value; safe to copy and to use from any thread.
// Needs Thrust (CCCL 2.3 or later).

#include <cistern/allocator.h>
#include <cistern/stream.h>
#include <thrust/device_ptr.h>
#include <thrust/device_reference.h>

#include <cstddef>
#include <limits>
#include <new>

namespace cistern {

template <class T>
class ThrustAllocator {
 public:
  using value_type = T;
  using pointer = thrust::device_ptr<T>;
  using const_pointer = thrust::device_ptr<const T>;
  using reference = thrust::device_reference<T>;
  using const_reference = thrust::device_reference<const T>;
  using size_type = std::size_t;
  using difference_type = typename pointer::difference_type;
  template <class U>
  struct rebind {
    using other = ThrustAllocator<U>;
  };

  // Of the stream that is current now.
  ThrustAllocator() : ThrustAllocator(current_stream()) {}
  explicit ThrustAllocator(const Stream& stream) : stream_(stream) {}
  template <class U>
  ThrustAllocator(const ThrustAllocator<U>& other) : stream_(other.stream()) {}  // NOLINT(google-explicit-constructor)

  // Uninitialised; a null pointer for none. Throws as cistern::allocate, and std::bad_array_new_length.
  [[nodiscard]] pointer allocate(size_type count) {
    if (count > max_size()) throw std::bad_array_new_length();
    return pointer(static_cast<T*>(cistern::allocate(count * sizeof(T), stream_)));
  }
  // In order on this stream. `count` as it was allocated with: else nothing is freed (see deallocate_sized).
  void deallocate(pointer memory, size_type count) noexcept {
    deallocate_sized(memory.get(), count * sizeof(T), stream_);
  }
  [[nodiscard]] size_type max_size() const noexcept { return std::numeric_limits<size_type>::max() / sizeof(T); }
  [[nodiscard]] const Stream& stream() const noexcept { return stream_; }

 private:
  Stream stream_;
};

template <class T, class U>
bool operator==(const ThrustAllocator<T>& a, const ThrustAllocator<U>& b) noexcept {
  return a.stream() == b.stream();
}
template <class T, class U>
bool operator!=(const ThrustAllocator<T>& a, const ThrustAllocator<U>& b) noexcept {
  return !(a == b);
}

}  // namespace cistern
