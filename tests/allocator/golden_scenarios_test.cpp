// The two worked scenarios that PyTorch users can repeat by hand, step by step.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kMegaSigned = 1024 * 1024;

Stat stat(std::int64_t current, std::int64_t peak, std::int64_t allocated, std::int64_t freed) {
  return {current, peak, allocated, freed};
}

TEST(GoldenScenario, DelayedFreeSplitAndEmptyCache) {
  SimulatedDriver driver({.capacity_bytes = 1024 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse("policy:classic")});
  const StreamHandle other = driver.create_stream();
  const auto all = [&](PoolStat MemoryStats::*name) { return (allocator.memory_stats().*name).all; };

  void* x = allocator.allocate(1000);
  EXPECT_EQ(all(&MemoryStats::inactive_split_bytes), stat(2096128, 2096128, 2096128, 0));
  void* y = allocator.allocate(3145729);
  EXPECT_EQ(all(&MemoryStats::allocated_bytes), stat(3147264, 3147264, 3147264, 0));
  EXPECT_EQ(all(&MemoryStats::reserved_bytes), stat(23068672, 23068672, 23068672, 0));
  allocator.deallocate(x);
  EXPECT_EQ(all(&MemoryStats::inactive_split), stat(1, 2, 2, 1));
  EXPECT_EQ(all(&MemoryStats::inactive_split_bytes), stat(17825280, 19921408, 19921408, 2096128));

  driver.occupy(other, 1ms);
  allocator.record_stream(y, other);
  allocator.deallocate(y);
  EXPECT_EQ(all(&MemoryStats::allocation), stat(0, 2, 2, 2));
  EXPECT_EQ(all(&MemoryStats::active), stat(1, 2, 2, 1));
  EXPECT_EQ(all(&MemoryStats::requested_bytes), stat(3145729, 3146729, 3146729, 1000));

  driver.run_until_idle(other);
  EXPECT_EQ(all(&MemoryStats::active), stat(1, 2, 2, 1)) << "only a malloc notices that an event is done";
  void* z = allocator.allocate(12582912);
  EXPECT_EQ(all(&MemoryStats::segment), stat(2, 2, 2, 0)) << "z reuses the 20 MiB segment";
  EXPECT_EQ(all(&MemoryStats::active_bytes), stat(12582912, 12582912, 15730176, 3147264));
  EXPECT_EQ(all(&MemoryStats::inactive_split_bytes), stat(8388608, 19921408, 28310016, 19921408));
  void* w = allocator.allocate(15728641);
  EXPECT_EQ(all(&MemoryStats::allocated_bytes), stat(29360128, 29360128, 32507392, 3147264));

  allocator.reset_peak_memory_stats();
  EXPECT_EQ(all(&MemoryStats::inactive_split_bytes), stat(8388608, 8388608, 28310016, 19921408));
  allocator.deallocate(z);
  allocator.deallocate(w);
  EXPECT_EQ(all(&MemoryStats::reserved_bytes), stat(39845888, 39845888, 39845888, 0));
  allocator.empty_cache();

  EXPECT_EQ(all(&MemoryStats::allocation), stat(0, 2, 4, 4));
  EXPECT_EQ(all(&MemoryStats::active), stat(0, 2, 4, 4));
  EXPECT_EQ(all(&MemoryStats::segment), stat(0, 3, 3, 3));
  EXPECT_EQ(all(&MemoryStats::inactive_split), stat(0, 1, 3, 3));
  EXPECT_EQ(all(&MemoryStats::allocated_bytes), stat(0, 29360128, 32507392, 32507392));
  EXPECT_EQ(all(&MemoryStats::active_bytes), stat(0, 29360128, 32507392, 32507392));
  EXPECT_EQ(all(&MemoryStats::requested_bytes), stat(0, 28311553, 31458282, 31458282));
  EXPECT_EQ(all(&MemoryStats::reserved_bytes), stat(0, 39845888, 39845888, 39845888));
  EXPECT_EQ(all(&MemoryStats::inactive_split_bytes), stat(0, 8388608, 28310016, 28310016));
  const MemoryStats end = allocator.memory_stats();
  EXPECT_EQ(end.num_device_alloc, 3);
  EXPECT_EQ(end.num_device_free, 3);
  EXPECT_EQ(end.num_sync_all_streams, 1);
  EXPECT_EQ(end.num_alloc_retries, 0);
  EXPECT_EQ(end.num_ooms, 0);
}

TEST(GoldenScenario, RetryAfterAFlushAndOutOfMemory) {
  SimulatedDriver driver({.capacity_bytes = 96 * kMega, .backing = Backing::none});
  CachingAllocator allocator(
      {.driver = &driver.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:classic")});
  const StreamHandle side = driver.create_stream();

  static_cast<void>(allocator.allocate(1000));
  void* large = allocator.allocate(3145729);
  static_cast<void>(allocator.allocate(5000));
  static_cast<void>(allocator.allocate(700000, side));
  driver.occupy(side, 1ms);
  allocator.record_stream(large, side);
  allocator.deallocate(large);
  allocator.deallocate(allocator.allocate(50 * kMega));
  static_cast<void>(allocator.allocate(66 * kMega));
  EXPECT_EQ(allocator.memory_stats().num_alloc_retries, 1);
  try {
    static_cast<void>(allocator.allocate(90 * kMega));
    FAIL();
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.report().rounded_bytes, 94371840U);
    EXPECT_EQ(error.report().device_free_bytes, 27262976U);
    EXPECT_EQ(error.report().cause, OutOfMemoryCause::device_full);
  }
  void* last = allocator.allocate(4096);
  driver.occupy(side, 1ms);
  allocator.deallocate(last, side);

  const MemoryStats end = allocator.memory_stats();
  EXPECT_EQ(end.num_device_alloc, 5);
  EXPECT_EQ(end.num_device_free, 2);
  EXPECT_EQ(end.num_sync_all_streams, 2);
  EXPECT_EQ(end.num_alloc_retries, 2);
  EXPECT_EQ(end.num_ooms, 1);
  EXPECT_EQ(end.max_split_size, -1);
  EXPECT_EQ(end.allocation, (PoolStat{stat(4, 5, 7, 3), stat(3, 4, 4, 1), stat(1, 1, 3, 2)}));
  EXPECT_EQ(end.active, (PoolStat{stat(5, 5, 7, 2), stat(4, 4, 4, 0), stat(1, 2, 3, 2)}));
  EXPECT_EQ(end.segment, (PoolStat{stat(3, 4, 5, 2), stat(2, 2, 2, 0), stat(1, 2, 3, 2)}));
  EXPECT_EQ(end.inactive_split, (PoolStat{stat(2, 3, 3, 1), stat(2, 2, 2, 0), stat(0, 1, 1, 1)}));
  EXPECT_EQ(end.allocated_bytes,
            (PoolStat{stat(69912576, 69916672, 125491712, 55579136), stat(706560, 710656, 710656, 4096),
                      stat(66 * kMegaSigned, 66 * kMegaSigned, 124781056, 55575040)}));
  EXPECT_EQ(end.requested_bytes,
            (PoolStat{stat(69916112, 69916112, 125490641, 55574529), stat(710096, 710096, 710096, 0),
                      stat(66 * kMegaSigned, 66 * kMegaSigned, 124780545, 55574529)}));
  EXPECT_EQ(end.reserved_bytes,
            (PoolStat{stat(73400320, 77594624, 146800640, 73400320), stat(4194304, 4194304, 4194304, 0),
                      stat(66 * kMegaSigned, 70 * kMegaSigned, 142606336, 73400320)}));
  EXPECT_EQ(end.inactive_split_bytes,
            (PoolStat{stat(3483648, 21313024, 21318144, 17834496), stat(3483648, 3487744, 3492864, 9216),
                      stat(0, 17825280, 17825280, 17825280)}));
}

}  // namespace
}  // namespace cistern
