#pragma once

// The locks of several streams, for who needs no more of the heap; and the frees of theirs that wait.
//
// Not thread-safe: made, used and ended by one call. O(streams), and their order's.

#include "allocator/awaited_frees.h"
#include "allocator/awake_streams.h"
#include "allocator/stream_heap.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <span>

namespace cistern {

// Holds them in the order in which HeapMutex takes them.
class StreamLocks {
 public:
  StreamLocks(StreamHeap& own, const AwakeStreams& awake, AwakeStreams::Bits others) noexcept {
    heaps_[count_++] = &own;
    awake.for_each(others, [&](StreamHeap& heap) { heaps_[count_++] = &heap; });
    std::sort(heaps_.begin(), heaps_.begin() + count_, std::less<>());
    // A stream that slept and woke meanwhile may have been met twice.
    count_ = std::unique(heaps_.begin(), heaps_.begin() + count_) - heaps_.begin();
    for (StreamHeap* heap : heaps()) heap->mutex.lock();
  }
  ~StreamLocks() {
    for (StreamHeap* heap : heaps()) heap->mutex.unlock();
  }
  StreamLocks(const StreamLocks&) = delete;
  StreamLocks& operator=(const StreamLocks&) = delete;
  [[nodiscard]] std::span<StreamHeap* const> heaps() const noexcept {
    return {heaps_.data(), static_cast<std::size_t>(count_)};
  }

 private:
  std::array<StreamHeap*, AwakeStreams::kMost + 1> heaps_;  // as many as are counted
  std::ptrdiff_t count_ = 0;
};

// The frees that wait of those streams, and whose each list is.
template <std::size_t kStreams>
struct AwaitedOf {
  static constexpr std::size_t kMost = kStreams == std::dynamic_extent ? AwakeStreams::kMost : kStreams;

  [[nodiscard]] std::span<AwaitedFrees* const, kStreams> span() const noexcept {
    return std::span<AwaitedFrees* const, kStreams>(lists.data(), count);
  }
  void add(StreamHeap& heap) noexcept {
    heaps[count] = &heap;
    lists[count++] = &heap.awaited;
  }

  std::array<AwaitedFrees*, kMost> lists;
  std::array<StreamHeap*, kMost> heaps;
  std::size_t count = 0;
};

}  // namespace cistern
