// What each stream takes of the host's memory that asks for little.

#include <cistern/allocator.h>
#include <cistern/history.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/allocator/host_memory.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

struct Case {
  std::string policy;
  std::size_t most;  // bytes a stream
};

class HostMemoryOfStreams : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Policies, HostMemoryOfStreams, ::testing::Values(Case{"classic", 5000}, Case{"paged", 10000}),
                         [](const auto& each) { return each.param.policy; });

// Tables that a stream may use are not counted: StreamHeap.TouchesOfItsRoomOnlyWhatItUses.
TEST_P(HostMemoryOfStreams, IsAFewKilobytes) {
  constexpr std::size_t kStreams = 512;
  SimulatedDriver driver({.capacity_bytes = std::size_t{4} << 30, .backing = Backing::none});
  CachingAllocator allocator(
      {.driver = &driver.api(), .options = AllocatorOptions::parse("policy:" + GetParam().policy)});
  HistoryOptions off;
  off.enabled = HistoryEnabled::none;
  allocator.record_history(off);
  std::vector<StreamHandle> streams;
  for (std::size_t i = 0; i < kStreams; ++i) streams.push_back(driver.create_stream());
  std::vector<void*> blocks(kStreams);
  const std::size_t before = testing_host::bytes_in_use;
  for (std::size_t i = 0; i < kStreams; ++i) blocks[i] = allocator.allocate(kKibi, streams[i]);
  EXPECT_LE((testing_host::bytes_in_use - before) / kStreams, GetParam().most);
  for (void* const block : blocks) allocator.deallocate(block);
}

}  // namespace
}  // namespace cistern
