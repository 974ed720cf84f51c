#pragma once

// Vectors of host memory that may be large and are looked at all over: from 2 MiB on in pages of that size, where the
// kernel has them (Linux, Documentation/admin-guide/mm/transhuge.rst: "madvise"). A table of some MiB in small pages
// costs a fault each 4 KiB when it is made, and a walk of the page tables at most looks. All of it is there from the
// start, so that nobody waits for a large page under a stream's lock. LeakSanitizer looks for no pointers in it.
// Complexity: O(bytes) to make one.

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <vector>

namespace cistern {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Throws std::bad_alloc. Thread-safe.
[[nodiscard]] void* obtain_table(std::size_t bytes);
// Requires: obtained, with as many bytes. Thread-safe.
void release_table(void* table, std::size_t bytes) noexcept;

template <class T>
struct TableMemory {
  using value_type = T;
  // Fewer are of the default allocator.
  static constexpr std::size_t kLeast = kHugePage / sizeof(T);

  TableMemory() = default;
  template <class U>
  TableMemory(const TableMemory<U>& /*other*/) noexcept {}

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count < kLeast) return std::allocator<T>().allocate(count);
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(obtain_table(count * sizeof(T)));
  }
  void deallocate(T* table, std::size_t count) noexcept {
    if (count < kLeast) return std::allocator<T>().deallocate(table, count);
    release_table(table, count * sizeof(T));
  }
  friend bool operator==(const TableMemory& /*a*/, const TableMemory& /*b*/) { return true; }
};

template <class T>
using LargeTable = std::vector<T, TableMemory<T>>;

}  // namespace cistern
