// The free functions for page-locked host memory: the host heap of the process's DeviceHeaps.

#include <cistern/error.h>
#include <cistern/host_allocator.h>

#include "allocator/checked_host_free.h"
#include "allocator/host_sizes.h"
#include "allocator/process_heap.h"
#include "runtime/process_driver.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>

namespace cistern {
namespace {

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

void free_or_say(void* pointer, std::optional<std::size_t> bytes) noexcept {
  try {
    deallocate_host_checked(pointer, bytes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cistern: deallocate_host(%p): %s\n", pointer, error.what());
  }
}

}  // namespace

void* allocate_host(std::size_t bytes, Device device) {
  return allocate_host_aligned(bytes, host_sizes::kAlignment, device);
}

void* allocate_host_aligned(std::size_t bytes, std::size_t alignment, Device device) {
  DeviceHeaps& heaps = process_heaps();
  return heaps.host().allocate(bytes, alignment, resolve_device(device));
}

void deallocate_host_checked(void* pointer, std::optional<std::size_t> bytes) {
  if (pointer == nullptr || in_forked_child()) return;
  DeviceHeaps* const heaps = process_heaps_if_made();
  std::size_t requested = 0;
  const HostHeap::Freed freed =
      heaps == nullptr ? HostHeap::Freed::no_block : heaps->host().free(address_of(pointer), bytes, &requested);
  if (freed == HostHeap::Freed::no_block)
    throw InvalidArgument(fmt::format("{}: not the address of a live host block; nothing was done", pointer));
  if (freed == HostHeap::Freed::other_size)
    throw InvalidArgument(
        fmt::format("{} of {} bytes: the block was asked for with {}; nothing was freed", pointer, *bytes, requested));
}

void deallocate_host(void* pointer) noexcept { free_or_say(pointer, std::nullopt); }

void deallocate_host_sized(void* pointer, std::size_t bytes) noexcept { free_or_say(pointer, bytes); }

bool record_host_stream(void* pointer, const Stream& stream) {
  DeviceHeaps* const heaps = pointer == nullptr ? nullptr : process_heaps_if_made();
  return heaps != nullptr && heaps->host().record_use(address_of(pointer), heaps->use_of(stream));
}

void empty_host_cache() {
  if (DeviceHeaps* const heaps = process_heaps_if_made()) heaps->host().empty_cache();
}

HostMemoryStats host_memory_stats() {
  const DeviceHeaps* const heaps = process_heaps_for_reading();
  return heaps == nullptr ? HostMemoryStats{} : heaps->host().stats();
}

std::map<std::string, std::int64_t> host_memory_stats_flat() {
  const DeviceHeaps* const heaps = process_heaps_for_reading();
  return heaps == nullptr ? std::map<std::string, std::int64_t>{} : heaps->host().stats().flat();
}

NestedStats host_memory_stats_as_nested_dict() {
  const DeviceHeaps* const heaps = process_heaps_for_reading();
  return heaps == nullptr ? NestedStats{} : heaps->host().stats().nested();
}

void reset_peak_host_memory_stats() { process_heaps().host().reset_peaks(); }

void reset_accumulated_host_memory_stats() { process_heaps().host().reset_accumulated(); }

}  // namespace cistern
