#include "bench/host_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <mutex>
#include <new>

namespace {

std::atomic<std::uint64_t> requests{0};
std::atomic<std::size_t> heap_bytes{0};
std::atomic<std::size_t> peak_bytes{0};
thread_local int driver_depth = 0;

void count(std::size_t bytes) {
  requests.fetch_add(1, std::memory_order_relaxed);
  const std::size_t now = heap_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::size_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (peak < now && !peak_bytes.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

// Stands before each block, for its release: what was counted, 0 inside of the driver.
struct alignas(std::max_align_t) Header {
  void* base;
  std::size_t counted;
};

void* take(std::size_t bytes, std::size_t least_alignment) noexcept {
  const std::size_t alignment = std::max(least_alignment, alignof(Header));
  const std::size_t room = sizeof(Header) + alignment;
  if (bytes > SIZE_MAX - room) return nullptr;
  void* const base = std::malloc(bytes + room);
  if (base == nullptr) return nullptr;
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(base) + sizeof(Header);
  auto* const block = reinterpret_cast<Header*>((first + alignment - 1) / alignment * alignment);
  *(block - 1) = {base, driver_depth == 0 ? bytes : 0};
  if (driver_depth == 0) count(bytes);
  return block;
}

void give_back(void* pointer) noexcept {
  if (pointer == nullptr) return;
  const Header header = *(static_cast<Header*>(pointer) - 1);
  heap_bytes.fetch_sub(header.counted, std::memory_order_relaxed);
  std::free(header.base);
}

void* take_or_throw(std::size_t bytes, std::size_t alignment) {
  void* const block = take(bytes, alignment);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

constexpr std::size_t kDefault = alignof(std::max_align_t);

// The mappings that were counted. More than there are places are not: the library has few.
struct Mapping {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};
std::mutex mappings_mutex;
std::array<Mapping, 4096> mappings;

void add_mapping(Mapping added) {
  const auto place = std::ranges::find(mappings, std::uintptr_t{0}, &Mapping::begin);
  if (place != mappings.end()) *place = added;
}

void remove_mapping(std::uintptr_t begin, std::uintptr_t end) {
  for (Mapping& mapping : mappings) {
    if (mapping.end <= begin || end <= mapping.begin) continue;
    const Mapping before{mapping.begin, begin};
    const Mapping after{end, mapping.end};
    mapping = {};
    if (before.begin < before.end) add_mapping(before);
    if (after.begin < after.end) add_mapping(after);
  }
}

std::size_t resident_bytes(const Mapping& mapping) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::size_t resident = 0;
  std::array<unsigned char, 4096> pages{};
  for (std::uintptr_t address = mapping.begin; address < mapping.end; address += page * pages.size()) {
    const std::size_t bytes = std::min<std::size_t>(mapping.end - address, page * pages.size());
    if (::mincore(reinterpret_cast<void*>(address), bytes, pages.data()) != 0) continue;
    const auto last = pages.begin() + static_cast<std::ptrdiff_t>((bytes + page - 1) / page);
    resident += page * static_cast<std::size_t>(
                           std::count_if(pages.begin(), last, [](unsigned char flags) { return (flags & 1) != 0; }));
  }
  return resident;
}

}  // namespace

void* operator new(std::size_t bytes) { return take_or_throw(bytes, kDefault); }
void* operator new[](std::size_t bytes) { return take_or_throw(bytes, kDefault); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return take(bytes, kDefault); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return take(bytes, kDefault); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return take_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return take_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return take(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return take(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* pointer) noexcept { give_back(pointer); }
void operator delete[](void* pointer) noexcept { give_back(pointer); }
void operator delete(void* pointer, std::size_t) noexcept { give_back(pointer); }
void operator delete[](void* pointer, std::size_t) noexcept { give_back(pointer); }
void operator delete(void* pointer, const std::nothrow_t&) noexcept { give_back(pointer); }
void operator delete[](void* pointer, const std::nothrow_t&) noexcept { give_back(pointer); }
void operator delete(void* pointer, std::align_val_t) noexcept { give_back(pointer); }
void operator delete[](void* pointer, std::align_val_t) noexcept { give_back(pointer); }
void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept { give_back(pointer); }
void operator delete[](void* pointer, std::size_t, std::align_val_t) noexcept { give_back(pointer); }
void operator delete(void* pointer, std::align_val_t, const std::nothrow_t&) noexcept { give_back(pointer); }
void operator delete[](void* pointer, std::align_val_t, const std::nothrow_t&) noexcept { give_back(pointer); }

// The C library's own allocator does not come through these. Not hidden, as all else here is, or the library's calls
// would not come through them either.
extern "C" [[gnu::visibility("default")]] void* mmap(void* address, std::size_t bytes, int protection, int flags,
                                                     int file, off_t offset) noexcept {
  const long result = ::syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
  auto* const mapped = reinterpret_cast<void*>(result);
  if (mapped == MAP_FAILED || driver_depth != 0) return mapped;
  requests.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(mappings_mutex);
  const auto begin = static_cast<std::uintptr_t>(result);
  remove_mapping(begin, begin + bytes);
  add_mapping({begin, begin + bytes});
  return mapped;
}

extern "C" [[gnu::visibility("default")]] void* mremap(void* address, std::size_t bytes, std::size_t bytes_then,
                                                       int flags, ...) noexcept {
  va_list rest;
  va_start(rest, flags);
  void* const wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(rest, void*) : nullptr;
  va_end(rest);
  // Held through the call: what another thread maps in between is not to be taken for the old range.
  const std::lock_guard lock(mappings_mutex);
  const long result = ::syscall(SYS_mremap, address, bytes, bytes_then, flags, wanted);
  auto* const mapped = reinterpret_cast<void*>(result);
  if (mapped == MAP_FAILED || driver_depth != 0) return mapped;
  requests.fetch_add(1, std::memory_order_relaxed);
  const auto before = reinterpret_cast<std::uintptr_t>(address);
  const auto begin = static_cast<std::uintptr_t>(result);
  remove_mapping(before, before + bytes);
  remove_mapping(begin, begin + bytes_then);
  add_mapping({begin, begin + bytes_then});
  return mapped;
}

extern "C" [[gnu::visibility("default")]] int munmap(void* address, std::size_t bytes) noexcept {
  {
    const std::lock_guard lock(mappings_mutex);
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    remove_mapping(begin, begin + bytes);
  }
  return static_cast<int>(::syscall(SYS_munmap, address, bytes));
}

namespace cistern {

std::uint64_t host_memory_requests() { return requests.load(std::memory_order_relaxed); }

HostMemory host_memory() {
  HostMemory memory;
  memory.heap_bytes = heap_bytes.load(std::memory_order_relaxed);
  memory.peak_bytes = peak_bytes.load(std::memory_order_relaxed);
  const std::lock_guard lock(mappings_mutex);
  for (const Mapping& mapping : mappings)
    if (mapping.begin != 0) memory.mapped_bytes += resident_bytes(mapping);
  return memory;
}

void reset_host_memory_peak() {
  peak_bytes.store(heap_bytes.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

DriverCall::DriverCall() { ++driver_depth; }
DriverCall::~DriverCall() { --driver_depth; }

}  // namespace cistern
