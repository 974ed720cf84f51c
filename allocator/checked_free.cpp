#include "allocator/checked_free.h"

#include "allocator/process_heap.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>

namespace cistern {
namespace {

constexpr std::size_t kAlignment = 512;  // of every block

void require_size(void* pointer, const std::optional<DeviceHeaps::LiveBlock>& live, std::size_t bytes) {
  if (!live || live->requested == bytes) return;
  throw InvalidArgument(fmt::format("{} of {} bytes: the block was asked for with {}; nothing was freed", pointer,
                                    bytes, live->requested));
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

void refuse_free(void* pointer) {
  throw InvalidArgument(fmt::format("{}: not the address of a live block; nothing was done", pointer));
}

void deallocate_checked(void* pointer, std::optional<std::size_t> bytes, const Stream* last_use) {
  if (pointer == nullptr) return;
  DeviceHeaps* heaps = process_heaps_if_made();
  if (heaps == nullptr) refuse_free(pointer);
  if (bytes) require_size(pointer, heaps->look_at(pointer), *bytes);
  bool is_freed = false;
  if (last_use != nullptr) {
    const StreamUse use = heaps->use_of(*last_use);
    is_freed = heaps->try_deallocate(pointer, &use);
  } else {
    is_freed = heaps->try_deallocate(pointer);
  }
  if (!is_freed) refuse_free(pointer);
}

OwnFree deallocate_on_own_stream(void* pointer, std::optional<std::size_t> bytes, const Stream& stream) {
  DeviceHeaps* heaps = process_heaps_if_made();
  if (heaps == nullptr) return OwnFree::no_block;
  const auto [identity, device] = heaps->request_of(stream);
  const std::optional<DeviceHeaps::LiveBlock> live = heaps->look_at(pointer);
  if (!live || live->stream != identity.id || live->device != device) return OwnFree::another_stream;
  if (bytes) require_size(pointer, live, *bytes);
  return heaps->try_deallocate(pointer) ? OwnFree::freed : OwnFree::no_block;
}

void deallocate_used(void* pointer, std::optional<std::size_t> bytes, const Stream& last_use) {
  if (pointer == nullptr) return;
  const OwnFree done = deallocate_on_own_stream(pointer, bytes, last_use);
  if (done == OwnFree::no_block) refuse_free(pointer);
  if (done == OwnFree::another_stream) deallocate_checked(pointer, bytes, &last_use);
}

void record_stream_checked(void* pointer, const Stream& stream) {
  if (pointer == nullptr) return;
  DeviceHeaps* heaps = process_heaps_if_made();
  if (heaps == nullptr || !heaps->record_stream(pointer, stream)) refuse_free(pointer);
}

void* allocate_aligned(std::size_t bytes, std::size_t alignment, const Stream& stream) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > kAlignment)
    throw InvalidArgument(fmt::format("alignment {}: expected a power of two, at most {}", alignment, kAlignment));
  return allocate(bytes, stream);
}

void deallocate_sized(void* pointer, std::size_t bytes) noexcept {
  said_on_standard_error(pointer, [&] { deallocate_checked(pointer, bytes); });
}

void deallocate_sized(void* pointer, std::size_t bytes, const Stream& stream) noexcept {
  said_on_standard_error(pointer, [&] { deallocate_used(pointer, bytes, stream); });
}

void deallocate_sized(void* pointer, std::size_t bytes, StreamHandle stream, Device device) noexcept {
  said_on_standard_error(pointer, [&] {
    if (pointer != nullptr) deallocate_used(pointer, bytes, Stream::external(stream, device));
  });
}

}  // namespace cistern
