#pragma once

// The heaps whose hot path is measured: an allocator with the ring of its history off or on,
// as a user reaches it, over a device that keeps accounts only. CISTERN_BENCH_POLICY names its policy.

#include <cistern/allocator.h>
#include <cistern/history.h>
#include <cistern/options.h>
#include <cistern/stream.h>

#include <cstddef>
#include <cstdlib>
#include <string>

namespace cistern {

enum class Ring {
  off,
  on,  // without stacks: what is in force before anybody asks
};

inline HistoryOptions history_of(Ring ring) {
  HistoryOptions options = HistoryOptions::always_on();
  if (ring == Ring::off) options.enabled = HistoryEnabled::none;
  return options;
}

// "policy:NAME"; without a name PyTorch's rules, which are those of the peers that published figures.
inline std::string policy_text() {
  const char* name = std::getenv("CISTERN_BENCH_POLICY");
  return std::string("policy:") + (name != nullptr ? name : "classic");
}

inline AllocatorOptions hot_options() { return AllocatorOptions::parse(policy_text()); }

// Makes the process's device one that has no bytes, and more memory than any of the workloads asks for, whatever
// CISTERN_DEVICE said, and its heap one of the policy: only bookkeeping is measured here. There are addresses for 32
// times the memory, of which paged memory reserves four times it for each of up to eight streams of a heap. Before the
// first use of the device. CISTERN_BENCH_DEVICE names another, for recorded_turn_bench.cpp: most others ask the
// simulated driver what was called.
inline void use_accounting_device() {
  const char* named = std::getenv("CISTERN_BENCH_DEVICE");
  const char* device = named != nullptr ? named : "simulated:backing=none,capacity=256GiB";
  static const int set =
      ::setenv("CISTERN_DEVICE", device, 1) | ::setenv("CISTERN_ALLOC_CONF", policy_text().c_str(), 1);
  static_cast<void>(set);
}

// A heap of its own over the process's device, on its default stream.
class HotHeap {
 public:
  explicit HotHeap(Ring ring, const std::string& options = policy_text())
      : allocator_({.options = AllocatorOptions::parse(options)}) {
    allocator_.record_history(history_of(ring));
  }

  [[nodiscard]] void* allocate(std::size_t bytes) { return allocator_.allocate(bytes); }
  void release(void* pointer) { allocator_.deallocate(pointer); }
  [[nodiscard]] CachingAllocator& allocator() { return allocator_; }

  // This heap for work of a stream, which must outlive what is returned.
  struct OnStream {
    CachingAllocator* allocator = nullptr;
    const Stream* stream = nullptr;
    [[nodiscard]] void* allocate(std::size_t bytes) const { return allocator->allocate(bytes, *stream); }
    void release(void* pointer) const { allocator->deallocate(pointer); }
  };
  [[nodiscard]] OnStream on_stream(const Stream& stream) { return {&allocator_, &stream}; }

 private:
  struct Device {
    Device() { use_accounting_device(); }
  };
  Device device_;  // chosen before the allocator is made
  CachingAllocator allocator_;
};

// A heap for blocks of the owner's stream that the user's uses, too.
struct RecordedHeap {
  CachingAllocator* allocator;
  const Stream* owner;
  const Stream* user;
  [[nodiscard]] void* allocate(std::size_t bytes) const { return allocator->allocate(bytes, *owner); }
  void release(void* pointer) const {
    allocator->record_stream(pointer, *user);
    allocator->deallocate(pointer);
  }
};

// The process's own heap through the free functions, which look up the current device and stream.
struct ProcessHeap {
  [[nodiscard]] void* allocate(std::size_t bytes) const { return cistern::allocate(bytes); }
  void release(void* pointer) const { cistern::deallocate(pointer); }
};

}  // namespace cistern
