#include "allocator/large_table.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace cistern {
namespace {

// The kernel may refuse to part a mapping where the process has as many as it may: then the addresses stay.
void unmap(void* begin, std::size_t bytes) noexcept {
  if (bytes != 0 && ::munmap(begin, bytes) != 0) static_cast<void>(::madvise(begin, bytes, MADV_DONTNEED));
}

std::size_t whole_pages(std::size_t bytes) noexcept {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

// Of a range that is longer by a huge page, the part that begins with one.
void* obtain_table(std::size_t bytes) {
  if (bytes > SIZE_MAX - 2 * kHugePage) throw std::bad_alloc();
  const std::size_t kept = whole_pages(bytes);
  const std::size_t all = kept + kHugePage;
  void* const range = ::mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (range == MAP_FAILED) throw std::bad_alloc();
  const std::size_t skipped = (kHugePage - reinterpret_cast<std::uintptr_t>(range) % kHugePage) % kHugePage;
  char* const table = static_cast<char*>(range) + skipped;
  unmap(range, skipped);
  unmap(table + kept, all - skipped - kept);
  // A kernel without either says so: then pages are small, or come when they are touched, which may be on a hit.
  static_cast<void>(::madvise(table, kept, MADV_HUGEPAGE));
  static_cast<void>(::madvise(table, kept, MADV_POPULATE_WRITE));
  return table;
}

void release_table(void* table, std::size_t bytes) noexcept { unmap(table, whole_pages(bytes)); }

}  // namespace cistern
