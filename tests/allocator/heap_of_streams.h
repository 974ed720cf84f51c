#pragma once

// One device's heap without the doors before it, over a simulated device without bytes: for tests that look at what it
// knows of its streams.

#include <cistern/history.h>
#include <cistern/options.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "allocator/device_allocator.h"
#include "allocator/event_pools.h"
#include "allocator/observers.h"
#include "allocator/out_of_memory_dump.h"
#include "runtime/context.h"
#include "tests/byte_units.h"

namespace cistern {

// Heap: a DeviceAllocator.
template <class Heap>
class HeapOfStreams : public ::testing::Test {
 protected:
  HeapOfStreams(const char* options, const HistoryOptions& history)
      : options_(AllocatorOptions::parse(options)),
        heap_({contexts_, event_pools_, observers_, no_snapshots_}, 0, options_, history) {}

  [[nodiscard]] StreamIdentity make_stream() {
    StreamIdentity stream;
    stream.handle = driver_.create_stream();
    unsigned long long id = 0;
    EXPECT_EQ(driver_.api().stream_get_id(stream.handle, &id), CUDA_SUCCESS);
    stream.id = id;
    return stream;
  }
  std::uint64_t take(std::size_t bytes, const StreamIdentity& stream) {
    return reinterpret_cast<std::uintptr_t>(heap_.allocate(bytes, stream));
  }
  void give(std::uint64_t address) {
    StreamHeap* const of_stream = heap_.find_by_page(address);
    EXPECT_TRUE(of_stream != nullptr ? heap_.free_beside_pairs(*of_stream, address) : heap_.free(address, nullptr));
  }
  void pair(std::size_t bytes, const StreamIdentity& stream) { give(take(bytes, stream)); }
  // So many times a pair of three sizes.
  void turns(const StreamIdentity& stream, int times) {
    for (int i = 0; i < times; ++i)
      for (const std::size_t bytes : {kKibi, 2 * kKibi, 3 * kKibi}) pair(bytes, stream);
  }

 private:
  struct NoSnapshots final : SnapshotSource {
    Written write_snapshot(int, int*) noexcept override { return Written::not_all; }
  };

 protected:
  SimulatedDriver driver_{{.capacity_bytes = 4096 * kMega, .backing = Backing::none}};

 private:
  Contexts contexts_{driver_.api()};
  AllocatorOptions options_;
  EventPools event_pools_{driver_.api(), 1};
  Observers observers_;
  NoSnapshots no_snapshots_;

 protected:
  Heap heap_;
};

}  // namespace cistern
