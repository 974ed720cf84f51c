// PeakScope: the public face of HeapScopes.

#include <cistern/error.h>
#include <cistern/scope.h>

#include "allocator/caching_allocator_state.h"
#include "allocator/process_heap.h"
#include "allocator/scopes.h"

#include <fmt/format.h>

#include <utility>

namespace cistern {

namespace {

// -1 means all devices here, and no caller.
int require_device(const DeviceHeaps& heaps, int device) {
  static_cast<void>(heaps.existing(device));
  return device;
}

}  // namespace

struct PeakScope::State {
  // `its_device` -1: all.
  State(DeviceHeaps& heaps, int its_device)
      : link(heaps.link()),
        device(its_device),
        default_device(heaps.current_device()),
        scopes(heaps.device_count(), its_device, heaps.unused_stats()) {
    heaps.open(scopes, its_device);
  }
  ~State() { stop(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Heaps that ended have closed it; those of a forked child cannot be asked.
  void stop() noexcept {
    if (DeviceHeaps* heaps = link->heaps) heaps->close(scopes);
  }
  [[nodiscard]] bool is_open() const noexcept {
    DeviceHeaps* heaps = link->heaps;
    return heaps == nullptr ? scopes.is_open() : heaps->is_open(scopes);
  }
  [[nodiscard]] int index_of(Device wanted) const {
    if (!wanted.is_current()) return wanted.index();
    if (device >= 0) return device;
    DeviceHeaps* heaps = link->heaps;
    return heaps == nullptr ? default_device : heaps->current_device();
  }
  [[nodiscard]] MemoryStats stats(Device wanted) const {
    const int index = index_of(wanted);
    if (!scopes.is_of(index))
      throw InvalidArgument(fmt::format("device {} of a scope: expected {}", index,
                                        device < 0 ? "a device of its allocator" : fmt::format("device {}", device)));
    if (DeviceHeaps* heaps = link->heaps) return heaps->scope_stats(scopes, index);
    if (scopes.is_open())
      throw NotSupported("a scope that was open when this process was forked: its allocator is the parent's");
    return scopes.stats(index);
  }

  const std::shared_ptr<DeviceHeaps::Link> link;
  const int device;
  const int default_device;
  HeapScopes scopes;
};

PeakScope::PeakScope(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
PeakScope::PeakScope(Device device) : state_(std::make_unique<State>(process_heaps(), resolve_device(device))) {}
PeakScope::PeakScope(CachingAllocator& allocator, int device)
    : state_(std::make_unique<State>(CachingAllocatorAccess::heaps(allocator),
                                     require_device(CachingAllocatorAccess::heaps(allocator), device))) {}
PeakScope PeakScope::of_all_devices() { return PeakScope(std::make_unique<State>(process_heaps(), -1)); }
PeakScope PeakScope::of_all_devices(CachingAllocator& allocator) {
  return PeakScope(std::make_unique<State>(CachingAllocatorAccess::heaps(allocator), -1));
}
PeakScope::~PeakScope() = default;
PeakScope::PeakScope(PeakScope&&) noexcept = default;
PeakScope& PeakScope::operator=(PeakScope&&) noexcept = default;

PeakScope::State& PeakScope::state() const {
  if (state_ == nullptr) throw InvalidArgument("a PeakScope that was moved from: expected a scope");
  return *state_;
}

MemoryStats PeakScope::stats(Device device) const { return state().stats(device); }
std::int64_t PeakScope::peak_bytes(Device device) const { return stats(device).allocated_bytes.all.peak; }

std::int64_t PeakScope::start_bytes(Device device) const {
  const Stat bytes = stats(device).allocated_bytes.all;
  return bytes.current - bytes.allocated + bytes.freed;
}

void PeakScope::stop() noexcept {
  if (state_ != nullptr) state_->stop();
}

bool PeakScope::is_open() const noexcept { return state_ != nullptr && state_->is_open(); }

}  // namespace cistern
