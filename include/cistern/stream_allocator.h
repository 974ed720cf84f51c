#pragma once

// StreamAllocator<T>: the process-wide heap as an allocator of the standard library, for work on one stream.
//
//   std::vector<float, cistern::StreamAllocator<float>> values(count, cistern::StreamAllocator<float>(stream));
//
// A container of it constructs and destroys nothing, since the host does not reach device memory: its values begin
// uninitialised, and what would write one from the host does not compile.
// Allocators are equal if their streams are. Moves and swaps take the allocator along; copies of a container keep
// their own. Thread safety: a value; safe to copy and to use from any thread.

#include <cistern/allocator.h>
#include <cistern/stream.h>

#include <cstddef>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

namespace cistern {

template <class T>
class StreamAllocator {
  static_assert(std::is_trivially_copyable<T>::value, "device memory holds trivially copyable values");

 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;
  using is_always_equal = std::false_type;

  // Of the stream that is current now.
  StreamAllocator() : StreamAllocator(current_stream()) {}
  explicit StreamAllocator(const Stream& stream) : stream_(stream) {}
  template <class U>
  StreamAllocator(const StreamAllocator<U>& other) : stream_(other.stream()) {}  // NOLINT(google-explicit-constructor)

  // Uninitialised; nullptr for none. Throws as cistern::allocate, and std::bad_array_new_length.
  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(cistern::allocate(count * sizeof(T), stream_));
  }
  // In order on this stream. `count` as it was allocated with: else nothing is freed (see deallocate_sized).
  void deallocate(T* pointer, std::size_t count) noexcept { deallocate_sized(pointer, count * sizeof(T), stream_); }

  template <class U>
  void construct(U*) noexcept {}
  template <class U, class First, class... Rest>
  void construct(U*, First&&, Rest&&...) = delete;
  template <class U>
  void destroy(U*) noexcept {}

  [[nodiscard]] const Stream& stream() const noexcept { return stream_; }

 private:
  Stream stream_;
};

template <class T, class U>
bool operator==(const StreamAllocator<T>& a, const StreamAllocator<U>& b) noexcept {
  return a.stream() == b.stream();
}
template <class T, class U>
bool operator!=(const StreamAllocator<T>& a, const StreamAllocator<U>& b) noexcept {
  return !(a == b);
}

}  // namespace cistern
