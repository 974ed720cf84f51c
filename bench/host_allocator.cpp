#include "bench/host_allocator.h"

#include <dlfcn.h>

#include <cstdlib>

namespace cistern {

HostAllocator c_library_allocator() { return {&std::malloc, &std::free}; }

HostAllocator tcmalloc_allocator() {
  static void* const library = dlopen("libtcmalloc_minimal.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  HostAllocator allocator;
  allocator.allocate = reinterpret_cast<void* (*)(std::size_t)>(dlsym(library, "tc_malloc"));
  allocator.release = reinterpret_cast<void (*)(void*)>(dlsym(library, "tc_free"));
  return allocator.release == nullptr ? HostAllocator{} : allocator;
}

}  // namespace cistern
