#pragma once

// Two streams that may serve themselves, under either policy that lets them.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <cistern/stats.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include "runtime/stream_access.h"
#include "tests/byte_units.h"

namespace cistern {

class StreamHitsTest : public ::testing::TestWithParam<Policy> {
 protected:
  [[nodiscard]] static bool is_paged() { return GetParam() == Policy::paged; }
  // As often as makes a stream serve itself.
  void wake(StreamHandle stream) {
    for (int i = 0; i < 3; ++i) allocator_.deallocate(allocator_.allocate(kKibi, stream));
  }
  [[nodiscard]] MemoryStats stats() const { return allocator_.memory_stats(); }
  template <class Work>
  static void on_another_thread(Work&& work) {
    std::thread(std::forward<Work>(work)).join();
  }
  void expect_nothing_live() const {
    const MemoryStats now = stats();
    EXPECT_EQ(now.allocation.all.current, 0);
    EXPECT_EQ(now.allocated_bytes.all.current, 0);
    EXPECT_EQ(now.active.all.current, 0);
    EXPECT_EQ(now.requested_bytes.all.current, 0);
    EXPECT_EQ(now.allocation.all.allocated, now.allocation.all.freed);
    EXPECT_EQ(now.allocated_bytes.all.allocated, now.allocated_bytes.all.freed);
    allocator_.check();
  }

  SimulatedDriver driver_{{.capacity_bytes = 4096 * kMega, .backing = Backing::none}};
  CachingAllocator allocator_{{.driver = &driver_.api(),
                               .options = AllocatorOptions::parse(
                                   std::string("oom_dump:off,stream_hand_over:done,policy:") + to_string(GetParam()))}};
  const StreamHandle first_ = driver_.create_stream();
  const StreamHandle second_ = driver_.create_stream();
};

}  // namespace cistern
