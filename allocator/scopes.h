#pragma once

// A PeakScope's hold on the heaps of its devices.

#include "stats/scope_ledger.h"

#include <cstddef>
#include <memory>

namespace cistern {

class DeviceAllocator;

// Guarded by the DeviceHeaps that it is open in.
class HeapScopes {
 public:
  // Of one device, or of all `devices` where `device` is -1. `unused` is what devices without a heap have.
  HeapScopes(int devices, int device, const MemoryStats& unused);
  HeapScopes(const HeapScopes&) = delete;
  HeapScopes& operator=(const HeapScopes&) = delete;

  [[nodiscard]] bool is_of(int device) const { return device_ < 0 ? device < devices_ : device == device_; }
  [[nodiscard]] bool is_open() const { return is_open_; }
  // Requires: it is of the heap's device, and open.
  void open(DeviceAllocator& heap) noexcept;
  void close() noexcept;
  // Requires: it is of the device.
  [[nodiscard]] MemoryStats stats(int device) const noexcept;

 private:
  struct Slot {
    DeviceAllocator* heap = nullptr;  // while open there
    OpenScope scope;
    MemoryStats stats;  // what it saw, once closed
  };
  [[nodiscard]] Slot& slot(int device) const { return slots_[static_cast<std::size_t>(device_ < 0 ? device : 0)]; }

  const int devices_;
  const int device_;
  bool is_open_ = true;
  std::unique_ptr<Slot[]> slots_;
};

}  // namespace cistern
