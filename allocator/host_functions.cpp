// The free functions for page-locked and for managed memory: the two host heaps of the process's DeviceHeaps.

#include <cistern/error.h>
#include <cistern/host_allocator.h>
#include <cistern/managed_memory.h>

#include "allocator/checked_host_free.h"
#include "allocator/host_sizes.h"
#include "allocator/process_heap.h"
#include "runtime/process_driver.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>

namespace cistern {
namespace {

// Of one kind of memory: its heap, and what a block of it is called.
struct Kind {
  HostHeap& (DeviceHeaps::*heap)() noexcept;
  const char* block;
};
constexpr Kind kPinned{&DeviceHeaps::host, "host block"};
constexpr Kind kManaged{&DeviceHeaps::managed, "managed block"};

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

HostHeap& heap_of(const Kind& kind) { return (process_heaps().*kind.heap)(); }

void* allocate(const Kind& kind, std::size_t bytes, std::size_t alignment, Device device) {
  HostHeap& heap = heap_of(kind);
  return heap.allocate(bytes, alignment, resolve_device(device));
}

void free_checked(const Kind& kind, void* pointer, std::optional<std::size_t> bytes) {
  if (pointer == nullptr || in_forked_child()) return;
  DeviceHeaps* const heaps = process_heaps_if_made();
  std::size_t requested = 0;
  const HostHeap::Freed freed =
      heaps == nullptr ? HostHeap::Freed::no_block : (heaps->*kind.heap)().free(address_of(pointer), bytes, &requested);
  if (freed == HostHeap::Freed::no_block)
    throw InvalidArgument(fmt::format("{}: not the address of a live {}; nothing was done", pointer, kind.block));
  if (freed == HostHeap::Freed::other_size)
    throw InvalidArgument(
        fmt::format("{} of {} bytes: the block was asked for with {}; nothing was freed", pointer, *bytes, requested));
}

void free_or_say(const Kind& kind, void* pointer, std::optional<std::size_t> bytes) noexcept {
  try {
    free_checked(kind, pointer, bytes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cistern: free of a %s: %s\n", kind.block, error.what());
  }
}

bool record(const Kind& kind, void* pointer, const Stream& stream) {
  DeviceHeaps* const heaps = pointer == nullptr ? nullptr : process_heaps_if_made();
  return heaps != nullptr && (heaps->*kind.heap)().record_use(address_of(pointer), heaps->use_of(stream));
}

void empty(const Kind& kind) {
  if (DeviceHeaps* const heaps = process_heaps_if_made()) (heaps->*kind.heap)().empty_cache();
}

HostMemoryStats stats_of(const Kind& kind) {
  DeviceHeaps* const heaps = process_heaps_for_reading();
  return heaps == nullptr ? HostMemoryStats{} : (heaps->*kind.heap)().stats();
}

}  // namespace

void* allocate_host(std::size_t bytes, Device device) {
  return allocate(kPinned, bytes, host_sizes::kAlignment, device);
}
void* allocate_host_aligned(std::size_t bytes, std::size_t alignment, Device device) {
  return allocate(kPinned, bytes, alignment, device);
}
void deallocate_host_checked(void* pointer, std::optional<std::size_t> bytes) { free_checked(kPinned, pointer, bytes); }
void deallocate_host(void* pointer) noexcept { free_or_say(kPinned, pointer, std::nullopt); }
void deallocate_host_sized(void* pointer, std::size_t bytes) noexcept { free_or_say(kPinned, pointer, bytes); }
bool record_host_stream(void* pointer, const Stream& stream) { return record(kPinned, pointer, stream); }
void empty_host_cache() { empty(kPinned); }

HostMemoryStats host_memory_stats() { return stats_of(kPinned); }

std::map<std::string, std::int64_t> host_memory_stats_flat() {
  if (process_heaps_for_reading() == nullptr) return {};
  return host_memory_stats().flat();
}

NestedStats host_memory_stats_as_nested_dict() {
  if (process_heaps_for_reading() == nullptr) return {};
  return host_memory_stats().nested();
}

void reset_peak_host_memory_stats() { heap_of(kPinned).reset_peaks(); }
void reset_accumulated_host_memory_stats() { heap_of(kPinned).reset_accumulated(); }

void* allocate_managed(std::size_t bytes, Device device) {
  return allocate(kManaged, bytes, host_sizes::kAlignment, device);
}
void* allocate_managed_aligned(std::size_t bytes, std::size_t alignment, Device device) {
  return allocate(kManaged, bytes, alignment, device);
}
void deallocate_managed_checked(void* pointer, std::optional<std::size_t> bytes) {
  free_checked(kManaged, pointer, bytes);
}
void deallocate_managed(void* pointer) noexcept { free_or_say(kManaged, pointer, std::nullopt); }
void deallocate_managed_sized(void* pointer, std::size_t bytes) noexcept { free_or_say(kManaged, pointer, bytes); }
bool record_managed_stream(void* pointer, const Stream& stream) { return record(kManaged, pointer, stream); }
void empty_managed_cache() { empty(kManaged); }

HostMemoryStats managed_memory_stats() { return stats_of(kManaged); }
void reset_peak_managed_memory_stats() { heap_of(kManaged).reset_peaks(); }
void reset_accumulated_managed_memory_stats() { heap_of(kManaged).reset_accumulated(); }

}  // namespace cistern
