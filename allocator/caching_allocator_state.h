#pragma once

// What a CachingAllocator consists of.

#include <cistern/allocator.h>

#include "allocator/device_heaps.h"
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
  OwnContexts contexts;
  DeviceHeaps heaps;             // after the contexts: its end still uses them
  State* left_before = nullptr;  // of those that a forked child left to its parent
};

// For what works on an allocator's heaps from outside: scopes, budgets.
struct CachingAllocatorAccess {
  [[nodiscard]] static DeviceHeaps& heaps(CachingAllocator& allocator) { return allocator.state_->heaps; }
};

}  // namespace cistern
