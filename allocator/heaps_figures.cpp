// Figures by device, also of a device without a heap.

#include "allocator/device_heaps.h"

#include "stats/summary.h"

#include <optional>
#include <string>
#include <vector>

namespace cistern {

MemoryStats DeviceHeaps::stats(int device, ReservedByPrivatePool* pools) const {
  if (const DeviceAllocator* heap = existing(device)) return heap->stats(pools);
  return unused_stats();
}

MemoryStats DeviceHeaps::unused_stats() const { return unused_stats_of(options()); }

MemoryStats DeviceHeaps::unused_stats_of(const AllocatorOptions& options) {
  MemoryStats none;
  none.max_split_size = static_cast<std::int64_t>(options.max_split_size_bytes);
  return none;
}

std::vector<TagStats> DeviceHeaps::tag_stats(int device) const {
  if (const DeviceAllocator* heap = existing(device)) return heap->tag_stats();
  return {TagStats{}};
}

std::vector<HandOverStats> DeviceHeaps::hand_over_stats(int device) const {
  const DeviceAllocator* heap = existing(device);
  return heap == nullptr ? std::vector<HandOverStats>{} : heap->hand_over_stats();
}

std::vector<StreamStats> DeviceHeaps::stream_stats(int device) const {
  const DeviceAllocator* heap = existing(device);
  return heap == nullptr ? std::vector<StreamStats>{} : heap->stream_stats();
}

std::optional<PendingFree> DeviceHeaps::oldest_pending_free(int device) const {
  const DeviceAllocator* heap = existing(device);
  return heap == nullptr ? std::nullopt : heap->oldest_pending_free();
}

FragmentationStats DeviceHeaps::fragmentation(std::size_t request_bytes, int device) const {
  if (const DeviceAllocator* heap = existing(device)) return heap->fragmentation(request_bytes);
  FragmentationStats none;
  none.request_bytes = request_bytes;
  return none;
}

void DeviceHeaps::open(HeapScopes& scopes, int device) {
  if (device >= 0) static_cast<void>(heap(device));
  const std::lock_guard lock(mutex_);
  scopes_.push_back(&scopes);
  for_each([&](DeviceAllocator& heap) {
    if (scopes.is_of(heap.device())) scopes.open(heap);
  });
}

void DeviceHeaps::close(HeapScopes& scopes) noexcept {
  const std::lock_guard lock(mutex_);
  if (!scopes.is_open()) return;
  scopes.close();
  std::erase(scopes_, &scopes);
}

bool DeviceHeaps::is_open(const HeapScopes& scopes) const noexcept {
  const std::lock_guard lock(mutex_);
  return scopes.is_open();
}

MemoryStats DeviceHeaps::scope_stats(const HeapScopes& scopes, int device) const noexcept {
  const std::lock_guard lock(mutex_);
  return scopes.stats(device);
}

std::string DeviceHeaps::summary(int device, bool abbreviated) const {
  return format_summary(stats(device), device, abbreviated, options().summary_title);
}

}  // namespace cistern
