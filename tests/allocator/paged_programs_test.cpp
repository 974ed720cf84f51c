// Paged memory under programs of several streams, whose work the race detector follows.

#include <cistern/error.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "tests/allocator/paged_fixture.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

// Random programs on several streams, whose work the race detector follows.
TEST_F(PagedSmallDevice, RandomProgramsAreSound) {
  std::vector<StreamHandle> streams = {nullptr, driver.create_stream(), driver.create_stream()};
  std::mt19937_64 random(20261122);
  std::map<void*, std::size_t> live;
  std::int64_t sum = 0;
  const auto rounded = [](std::size_t bytes) { return static_cast<std::int64_t>((bytes + 511) / 512 * 512); };
  for (int i = 0; i < 3000; ++i) {
    const StreamHandle stream = streams[random() % streams.size()];
    const auto any_live = [&] { return std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size())); };
    const std::uint64_t choice = random() % 100;
    if (choice < 50) {
      const std::size_t bytes = 1 + random() % (choice < 20 ? 9 * kMega : kMega / 2);
      try {
        void* block = take(bytes, stream);
        EXPECT_TRUE(live.emplace(block, bytes).second);
        sum += rounded(bytes);
        work(block, bytes, stream);
      } catch (const OutOfMemoryError&) {
        driver.run_until_idle();
      }
    } else if (choice < 85 && !live.empty()) {
      const auto block = any_live();
      sum -= rounded(block->second);
      give(block->first);
      live.erase(block);
    } else if (choice < 92) {
      driver.step();
    } else if (choice < 96) {
      driver.run_until_idle(stream);
    } else if (choice < 97) {
      allocator.empty_cache();
    } else if (choice < 98) {
      allocator.trim(random() % (32 * kMega));
    }
    EXPECT_EQ(allocator.memory_stats().allocated_bytes.all.current, sum);
    if (i % 20 == 0) judge();
    if (HasFailure()) FAIL() << "operation " << i;
  }
  while (!live.empty()) {
    give(live.begin()->first);
    live.erase(live.begin());
  }
  driver.run_until_idle();
  allocator.empty_cache();
  EXPECT_EQ(driver.used_bytes(), 0U);
  judge();
}

// Steps that repeat on several streams, which have each other's bytes in turn: what is known is taken behind the work
// of those who had it, and nobody waits but the streams.
TEST_F(Paged, StepsThatRepeatOnSeveralStreamsAreSound) {
  struct Operation {
    std::size_t block;
    std::size_t bytes;  // 0: a free
    StreamHandle stream;
  };
  const std::vector<StreamHandle> streams = {nullptr, driver.create_stream(), driver.create_stream()};
  std::mt19937_64 random(20261123);
  std::vector<Operation> step;
  std::vector<std::size_t> open;
  std::size_t live = 0;
  std::vector<std::size_t> sizes;
  while (sizes.size() < 300) {
    const std::size_t bytes = 1 + random() % (random() % 4 == 0 ? 8 * kMega : kMega / 4);
    while (live + bytes > 40 * kMega || (!open.empty() && random() % 5 < 2)) {
      const std::size_t at = random() % open.size();
      step.push_back({open[at], 0, nullptr});
      live -= sizes[open[at]];
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
    }
    step.push_back({sizes.size(), bytes, streams[random() % streams.size()]});
    open.push_back(sizes.size());
    sizes.push_back(bytes);
    live += bytes;
  }
  for (const std::size_t block : open) step.push_back({block, 0, nullptr});
  std::uint64_t waits = 0;
  std::uint64_t maps = 0;
  for (int pass = 0; pass < 8; ++pass) {
    const std::uint64_t waits_before = driver.calls("cuStreamWaitEvent");
    const std::uint64_t maps_before = driver.calls("cuMemMap");
    std::vector<void*> blocks(sizes.size());
    for (const auto& [block, bytes, stream] : step) {
      if (bytes == 0) {
        give(blocks[block]);
        continue;
      }
      blocks[block] = take(bytes, stream);
      work(blocks[block], bytes, stream);
      if (pass % 2 == 0) driver.step();
    }
    EXPECT_EQ(driver.host_synchronizations(), 0U);
    if (pass % 3 == 2) judge();
    waits = driver.calls("cuStreamWaitEvent") - waits_before;
    maps = driver.calls("cuMemMap") - maps_before;
  }
  EXPECT_GT(waits, 0U);
  EXPECT_EQ(maps, 0U);
  driver.run_until_idle();
  judge();
}

}  // namespace
}  // namespace cistern
