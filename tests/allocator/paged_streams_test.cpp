// Paged memory of streams that are captured, that end, or that lie in each other's pages.

#include <cistern/allocator.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "tests/allocator/capturing_driver.h"
#include "tests/allocator/paged_fixture.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

// A stream that is captured cannot wait for what lies outside, nor can another for it.
TEST(PagedCapture, ACapturedStreamTakesItsOwnBytesAlone) {
  CapturingDriver captures({.capacity_bytes = 64 * kMega, .backing = Backing::none});
  CachingAllocator allocator(
      {.driver = &captures.api, .options = AllocatorOptions::parse("oom_dump:off,policy:paged")});
  const StreamHandle side = captures.driver.create_stream();
  const StreamHandle captured = captures.driver.create_stream();
  allocator.deallocate(allocator.allocate(16 * kMega, side));
  captures.begin_capture(captured, 1);
  void* block = allocator.allocate(16 * kMega, captured);
  EXPECT_EQ(allocator.memory_stats().reserved_bytes.all.current, std::int64_t{32 * kMega});
  captures.end_capture(captured);
  EXPECT_FALSE(captures.invalidated());
  allocator.check();
  allocator.deallocate(block);
}

// Nobody told of its end: what it had queued is not known to be over, and the host does not wait for it.
TEST_F(Paged, AStreamThatIsGoneKeepsItsMemory) {
  const StreamHandle side = driver.create_stream();
  end_a_stream_at_work(16 * kMega, false);
  void* next = take(16 * kMega, side);
  work(next, 16 * kMega, side);
  EXPECT_EQ(reserved(), mebibytes(32));
  EXPECT_EQ(driver.host_synchronizations(), 0U);
  driver.run_until_idle();
  judge();
  give(next);
  allocator.empty_cache();
  EXPECT_EQ(driver.used_bytes(), 0U);
}

// Nor do many take more than they had in use: pages are created ahead in proportion to what is used, not to what
// nobody can have.
TEST_F(Paged, StreamsThatAreGoneKeepNoMoreThanTheyUsed) {
  for (int i = 0; i < 200; ++i) end_a_stream_at_work(100 * kKibi, false);
  EXPECT_LE(reserved(), mebibytes(3) * 200) << "handles of 2 MiB, and some of more for fewer calls";
  driver.run_until_idle();
  judge();
}

// A stream that is over leaves its memory to others, behind its last work.
TEST_F(Paged, AStreamThatIsOverLeavesItsMemory) {
  const StreamHandle side = driver.create_stream();
  end_a_stream_at_work(16 * kMega, true);
  void* next = take(16 * kMega, side);
  work(next, 16 * kMega, side);
  EXPECT_EQ(reserved(), mebibytes(16));
  driver.run_until_idle();
  judge();
  give(next);
  allocator.empty_cache();
  EXPECT_EQ(driver.used_bytes(), 0U);
}

// A stretch in the middle of another stream's page, which no mapping brings: also of a step that comes again, whoever
// frees the block.
TEST_F(PagedSmallDevice, AStreamsBlockInAnothersPagesIsFound) {
  const StreamHandle side = driver.create_stream();
  std::vector<void*> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(take(kMega / 2));
  give(blocks[5]);
  give(blocks[6]);
  for (int turn = 0; turn < 6; ++turn) {
    void* block = take(kMega, side);
    EXPECT_EQ(block, blocks[5]);
    allocator.check();
    if (turn % 2 == 0)
      give(block);
    else
      std::thread([&] { give(block); }).join();
    EXPECT_EQ(allocator.memory_stats().allocation.all.current, 62);
    // Known to its stream without a look between.
    block = take(kMega, side);
    std::thread([&] { give(block); }).join();
    allocator.check();
  }
  judge();
}

}  // namespace
}  // namespace cistern
