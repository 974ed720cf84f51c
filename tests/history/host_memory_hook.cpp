#include "tests/history/host_memory_hook.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace cistern::testing_host {

void (*on_use)() = nullptr;
thread_local bool watches = false;

}  // namespace cistern::testing_host

namespace {

void note_use() {
  using cistern::testing_host::watches;
  if (!std::exchange(watches, false)) return;
  cistern::testing_host::on_use();
  watches = true;
}

// Out of line, both: else the compiler sees new meet free.
[[gnu::noinline]] void* request(std::size_t bytes) {
  note_use();
  return std::malloc(bytes);
}
[[gnu::noinline]] void give_back(void* memory) {
  if (memory == nullptr) return;
  note_use();
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) {
  if (void* memory = request(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return request(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return request(bytes); }
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete[](void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t) noexcept { give_back(memory); }

// The C library's own allocator does not come through these.
extern "C" void* mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  static const auto next = reinterpret_cast<decltype(&mmap)>(dlsym(RTLD_NEXT, "mmap"));
  note_use();
  return next(address, bytes, protection, flags, file, offset);
}
extern "C" int munmap(void* address, std::size_t bytes) noexcept {
  static const auto next = reinterpret_cast<decltype(&munmap)>(dlsym(RTLD_NEXT, "munmap"));
  note_use();
  return next(address, bytes);
}
