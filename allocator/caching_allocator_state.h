#pragma once

// What a CachingAllocator consists of.

#include <cistern/allocator.h>

#include "allocator/process_heap.h"
#include "runtime/fork_loss.h"
#include "runtime/process_driver.h"

#include <memory>

namespace cistern {

// The contexts that an allocator of one's own works in: it has its own over a driver it
// was given, and shares the process's otherwise.
struct OwnContexts {
  explicit OwnContexts(const DriverApi* driver) : own(driver ? std::make_unique<Contexts>(*driver) : nullptr) {}
  [[nodiscard]] Contexts& get() const { return own ? *own : process_contexts(); }
  std::unique_ptr<Contexts> own;
};

struct CachingAllocator::State {
  explicit State(const CachingAllocatorOptions& options)
      : contexts(options.driver), heaps(contexts.get(), options.options) {}
  // The heaps, for what reaches the driver or hands its memory out. Throws NotSupported in a forked child, whose
  // parent's the driver is; of an allocator over a driver of its own the child has a copy, of all of it.
  [[nodiscard]] DeviceHeaps& usable() {
    if (is_left_to_parent()) [[unlikely]]
      refuse_after_fork();
    return heaps;
  }
  [[nodiscard]] bool is_left_to_parent() const noexcept {
    return driver_lost_in_fork.load(std::memory_order_relaxed) && contexts.own == nullptr;
  }

  // Not inline, for who does not name a stream.
  [[nodiscard, gnu::noinline]] void* allocate(std::size_t bytes, StreamHandle stream, int device) {
    if (bytes == 0) return nullptr;
    const StreamUse use = usable().use_of(stream, device);
    return heaps.allocate(bytes, use.stream, use.device);
  }

  OwnContexts contexts;
  DeviceHeaps heaps;             // after the contexts: its end still uses them
  State* left_before = nullptr;  // of those that a forked child left to its parent
};

// For what works on an allocator's heaps from outside: scopes, budgets.
struct CachingAllocatorAccess {
  [[nodiscard]] static DeviceHeaps& heaps(CachingAllocator& allocator) { return allocator.state_->heaps; }
};

}  // namespace cistern
