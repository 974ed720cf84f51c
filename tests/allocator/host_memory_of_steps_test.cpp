// What the steps that a stream writes down take of the host's memory, at its most.

#include <cistern/allocator.h>
#include <cistern/history.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "allocator/recurrence.h"
#include "tests/allocator/host_memory.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

// The room that is there goes before there is more, where both would be more than the heap's memory is worth.
TEST(HostMemoryOfSteps, WhileTheirRoomGrowsIsNoMoreThanTheyAreWorth) {
  constexpr std::size_t kHeld = 512 * kMega;
  constexpr std::size_t kWorth =
      ((std::size_t{1} << 14) + kHeld / 1280 / Recurrence::kBytesOfStep) * Recurrence::kBytesOfStep;
  SimulatedDriver driver({.capacity_bytes = std::size_t{4} << 30, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse("policy:classic")});
  HistoryOptions off;
  off.enabled = HistoryEnabled::none;
  allocator.record_history(off);
  allocator.deallocate(allocator.allocate(kHeld - 20 * kMega));
  std::vector<void*> blocks(15000);
  const auto rounds = [&](int count, std::size_t of) {
    for (; count > 0; --count) {
      for (std::size_t i = 0; i < of; ++i) blocks[i] = allocator.allocate(kKibi);
      for (std::size_t i = 0; i < of; ++i) allocator.deallocate(blocks[i]);
    }
  };
  rounds(1, blocks.size());
  const std::size_t before = testing_host::bytes_in_use;
  rounds(20, 6000);
  const std::size_t first = testing_host::bytes_in_use - before;
  testing_host::most_in_use = 0;
  rounds(20, blocks.size());
  EXPECT_GT(first, kWorth / 4) << "there is room for the short rounds";
  EXPECT_GT(testing_host::bytes_in_use - before, kWorth - first) << "and for the long ones";
  EXPECT_LE(testing_host::most_in_use, before + kWorth);
}

}  // namespace
}  // namespace cistern
