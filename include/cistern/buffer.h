#pragma once

// DeviceBuffer<T>: an array in device memory that frees itself, in stream order.
//
// A buffer that was moved from is empty, and still has its stream.
// Thread safety: as a std::vector: different buffers from different threads.

#include <cistern/allocator.h>
#include <cistern/stream.h>

#include <cstddef>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

namespace cistern {

template <class T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable<T>::value, "device memory holds trivially copyable values");

 public:
  DeviceBuffer() noexcept = default;
  // `count` values, uninitialised, for work on `stream` (by default the current one).
  // Throws as allocate does; std::bad_array_new_length if the size overflows.
  explicit DeviceBuffer(std::size_t count) : DeviceBuffer(count, current_stream()) {}
  DeviceBuffer(std::size_t count, const Stream& stream)
      : data_(static_cast<T*>(allocate(bytes_for(count), stream))), size_(count), stream_(stream) {}
  // Frees on the buffer's stream; never throws and never waits.
  ~DeviceBuffer() { deallocate(data_); }

  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), stream_(other.stream_) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    if (this != &other) {
      reset();
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
      stream_ = other.stream_;
    }
    return *this;
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  // Frees the memory now; the buffer is empty.
  void reset() noexcept {
    deallocate(std::exchange(data_, nullptr));
    size_ = 0;
  }
  // The buffer is also used on `stream`: see cistern::record_stream.
  void record_stream(const Stream& stream) const { cistern::record_stream(data_, stream); }

  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] const Stream& stream() const noexcept { return stream_; }

 private:
  static std::size_t bytes_for(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return count * sizeof(T);
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
  Stream stream_;
};

}  // namespace cistern
