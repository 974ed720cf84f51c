#pragma once

// Host allocators to compare with: the C library's and tcmalloc's, for the same sizes.

#include <cstddef>

namespace cistern {

struct HostAllocator {
  void* (*allocate)(std::size_t bytes) = nullptr;
  void (*release)(void* pointer) = nullptr;
  explicit operator bool() const { return allocate != nullptr; }
};

[[nodiscard]] HostAllocator c_library_allocator();
// Debian's libtcmalloc_minimal through dlopen, once a process; empty where it is absent. It
// is loaded beside the C library's, so only calls through this reach it.
[[nodiscard]] HostAllocator tcmalloc_allocator();

}  // namespace cistern
