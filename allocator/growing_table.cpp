#include "allocator/growing_table.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

// To ThreadSanitizer what another table had at an address is there still when pages move to it.
#if defined(__SANITIZE_THREAD__)
#define CISTERN_PAGES_DO_NOT_MOVE
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CISTERN_PAGES_DO_NOT_MOVE
#endif
#endif

namespace cistern {

// Huge pages would each be there as a whole, and in small tables be more than is used.
void* obtain_table(std::size_t bytes) {
  void* const table = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (table == MAP_FAILED) throw std::bad_alloc();
  static_cast<void>(::madvise(table, bytes, MADV_NOHUGEPAGE));
  return table;
}

#ifdef CISTERN_PAGES_DO_NOT_MOVE
void* enlarge_table(void* table, std::size_t bytes, std::size_t larger) {
  void* const enlarged = obtain_table(larger);
  std::memcpy(enlarged, table, bytes);
  release_table(table, bytes);
  return enlarged;
}
#else
void* enlarge_table(void* table, std::size_t bytes, std::size_t larger) {
  void* const enlarged = ::mremap(table, bytes, larger, MREMAP_MAYMOVE);
  if (enlarged == MAP_FAILED) throw std::bad_alloc();
  return enlarged;
}
#endif

// The kernel may refuse to part a mapping where the process has as many as it may: then the addresses stay.
void release_table(void* table, std::size_t bytes) noexcept {
  if (::munmap(table, bytes) != 0) static_cast<void>(::madvise(table, bytes, MADV_DONTNEED));
}

void bring_pages(void* begin, std::size_t bytes) noexcept {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(begin) / page * page;
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(begin) + bytes;
  static_cast<void>(::madvise(reinterpret_cast<void*>(first), end - first, MADV_POPULATE_WRITE));
}

}  // namespace cistern
