#include "tests/allocator/host_memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace cistern::testing_host {

thread_local bool is_gone = false;
thread_local int served_requests_left = 0;
thread_local int refused_requests = 0;
thread_local std::size_t bytes_in_use = 0;
thread_local std::size_t most_in_use = 0;

}  // namespace cistern::testing_host

namespace {

bool refuses() {
  using namespace cistern::testing_host;
  if (!is_gone) return false;
  if (served_requests_left > 0) {
    --served_requests_left;
    return false;
  }
  ++refused_requests;
  return true;
}

// What operator new hands out. Throws std::bad_alloc where there is nothing.
void* counted(void* pointer) {
  using namespace cistern::testing_host;
  if (pointer == nullptr) throw std::bad_alloc();
  bytes_in_use += ::malloc_usable_size(pointer);
  most_in_use = std::max(most_in_use, bytes_in_use);
  return pointer;
}

}  // namespace

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* pointer, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) { return refuses() ? nullptr : __libc_malloc(bytes); }
void* calloc(std::size_t count, std::size_t bytes) { return refuses() ? nullptr : __libc_calloc(count, bytes); }
void* realloc(void* pointer, std::size_t bytes) { return refuses() ? nullptr : __libc_realloc(pointer, bytes); }
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return refuses() ? nullptr : __libc_memalign(alignment, bytes);
}
// What large tables ask for; the C library's own threads and files do not come by here.
void* mmap(void* hint, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  if (!refuses()) return reinterpret_cast<void*>(::syscall(SYS_mmap, hint, bytes, protection, flags, file, offset));
  errno = ENOMEM;
  return MAP_FAILED;
}
void* mremap(void* address, std::size_t bytes, std::size_t bytes_then, int flags, ...) noexcept {
  va_list rest;
  va_start(rest, flags);
  void* const wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(rest, void*) : nullptr;
  va_end(rest);
  if (!refuses()) return reinterpret_cast<void*>(::syscall(SYS_mremap, address, bytes, bytes_then, flags, wanted));
  errno = ENOMEM;
  return MAP_FAILED;
}
}

void* operator new(std::size_t bytes) { return counted(std::malloc(bytes == 0 ? 1 : bytes)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(aligned_alloc(static_cast<std::size_t>(alignment), bytes));
}
void operator delete(void* pointer) noexcept {
  cistern::testing_host::bytes_in_use -= ::malloc_usable_size(pointer);
  std::free(pointer);
}
void operator delete(void* pointer, std::size_t) noexcept { operator delete(pointer); }
void operator delete(void* pointer, std::align_val_t) noexcept { operator delete(pointer); }
void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept { operator delete(pointer); }
