#include "allocator/checked_free.h"

#include "allocator/process_heap.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>

namespace cistern {
namespace {

constexpr std::size_t kAlignment = 512;  // of every block

[[noreturn]] void refuse(void* pointer) {
  throw InvalidArgument(fmt::format("{}: not the address of a live block; nothing was done", pointer));
}

// For frees that must not throw. Nothing is said in a forked child, where frees are ignored.
template <class Free>
void said_on_standard_error(void* pointer, Free&& free) noexcept {
  try {
    free();
  } catch (const NotSupported&) {
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cistern: deallocate(%p): %s\n", pointer, error.what());
  }
}

}  // namespace

std::optional<std::size_t> HeapReports::requested_bytes(std::uint64_t address) const noexcept {
  const HeapLook look(mutex_);
  const Block* block = find_live(address);
  return block == nullptr ? std::nullopt : std::optional(block->requested);
}

std::optional<std::size_t> DeviceHeaps::requested_bytes(void* pointer) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::optional<std::size_t> bytes;
  find_owner(address, [&](const DeviceAllocator& heap) { return (bytes = heap.requested_bytes(address)).has_value(); });
  return bytes;
}

bool DeviceHeaps::try_deallocate(void* pointer, const StreamUse* last_use) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (last_use == nullptr && find_owner(address, [&](DeviceAllocator& heap) { return heap.free_by_stream(address); }))
    return true;
  if (find_owner(address, [&](DeviceAllocator& heap) { return heap.free(address, last_use); })) return true;
  contexts_.api().note_free(address, 0, nullptr);
  return false;
}

void deallocate_checked(void* pointer, std::optional<std::size_t> bytes, const std::optional<Stream>& last_use) {
  if (pointer == nullptr) return;
  DeviceHeaps* heaps = process_heaps_if_made();
  if (heaps == nullptr) refuse(pointer);
  std::optional<StreamUse> use;
  if (last_use) use = heaps->use_of(*last_use);
  if (bytes) {
    const std::optional<std::size_t> requested = heaps->requested_bytes(pointer);
    if (requested && *requested != *bytes)
      throw InvalidArgument(fmt::format("{} of {} bytes: the block was asked for with {}; nothing was freed", pointer,
                                        *bytes, *requested));
  }
  if (!heaps->try_deallocate(pointer, use ? &*use : nullptr)) refuse(pointer);
}

void record_stream_checked(void* pointer, const Stream& stream) {
  if (pointer == nullptr) return;
  DeviceHeaps* heaps = process_heaps_if_made();
  if (heaps == nullptr || !heaps->record_stream(pointer, heaps->use_of(stream))) refuse(pointer);
}

void* allocate_aligned(std::size_t bytes, std::size_t alignment, const Stream& stream) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > kAlignment)
    throw InvalidArgument(fmt::format("alignment {}: expected a power of two, at most {}", alignment, kAlignment));
  return allocate(bytes, stream);
}

void deallocate_sized(void* pointer, std::size_t bytes) noexcept {
  said_on_standard_error(pointer, [&] { deallocate_checked(pointer, bytes, std::nullopt); });
}

void deallocate_sized(void* pointer, std::size_t bytes, const Stream& stream) noexcept {
  said_on_standard_error(pointer, [&] { deallocate_checked(pointer, bytes, stream); });
}

void deallocate_sized(void* pointer, std::size_t bytes, StreamHandle stream, Device device) noexcept {
  said_on_standard_error(pointer, [&] {
    if (pointer != nullptr) deallocate_checked(pointer, bytes, Stream::external(stream, device));
  });
}

}  // namespace cistern
