#include "allocator/scopes.h"

#include "allocator/device_allocator.h"

namespace cistern {

HeapScopes::HeapScopes(int devices, int device, const MemoryStats& unused)
    : devices_(devices),
      device_(device),
      slots_(std::make_unique<Slot[]>(static_cast<std::size_t>(device < 0 ? devices : 1))) {
  for (int i = 0; i < (device < 0 ? devices : 1); ++i) slots_[static_cast<std::size_t>(i)].stats = unused;
}

void HeapScopes::open(DeviceAllocator& heap) noexcept {
  Slot& its = slot(heap.device());
  heap.open_scope(its.scope);
  its.heap = &heap;
}

void HeapScopes::close() noexcept {
  for (int i = 0; i < (device_ < 0 ? devices_ : 1); ++i) {
    Slot& its = slots_[static_cast<std::size_t>(i)];
    if (its.heap != nullptr) its.stats = its.heap->close_scope(its.scope);
    its.heap = nullptr;
  }
  is_open_ = false;
}

MemoryStats HeapScopes::stats(int device) const noexcept {
  const Slot& its = slot(device);
  return its.heap == nullptr ? its.stats : its.heap->scope_stats(its.scope);
}

}  // namespace cistern
