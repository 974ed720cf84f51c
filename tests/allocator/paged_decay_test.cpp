// Memory that nobody used for long goes back to the driver, with the requests that come, and nobody waits for it.

#include <cistern/allocator.h>
#include <cistern/mem_pool.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/allocator/capturing_driver.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kSecond = 1000000000;

// A heap whose time is the test's, and whose memory goes when nobody used it for ten seconds.
class PagedDecay : public ::testing::Test {
 protected:
  PagedDecay() {
    captures.api.host_clock = {&now, [](void* self) { return *static_cast<std::int64_t*>(self); }};
    static_cast<void>(take(kMega));  // stays
  }
  void* take(std::size_t bytes, StreamHandle stream = nullptr) { return allocator.allocate(bytes, stream); }
  void give(void* block) { allocator.deallocate(block); }
  // Requests of other memory for so long, forty a second: of a megabyte, beside one that stays.
  void go_on(std::int64_t seconds) {
    for (std::int64_t i = 0; i < 40 * seconds; ++i) {
      now += kSecond / 40;
      give(take(kMega));
    }
  }
  // So much work of the block's stream uses it.
  void* take_and_use(std::size_t bytes, StreamHandle stream) {
    void* block = take(bytes, stream);
    driver.launch(stream, {}, {{block, bytes}}, 1ms, [] {});
    return block;
  }
  // Without those that tell whose a stream is.
  [[nodiscard]] std::uint64_t calls_of_memory_and_events() const {
    std::uint64_t sum = 0;
    for (const auto& [name, calls] : driver.calls_by_name())
      if (name.starts_with("cuMem") || name.starts_with("cuEvent") || name == "cuStreamWaitEvent") sum += calls;
    return sum;
  }
  [[nodiscard]] std::int64_t reserved_mebibytes() const {
    return allocator.memory_stats().reserved_bytes.all.current >> 20;
  }

  std::int64_t now = 50 * kSecond;
  CapturingDriver captures{{.capacity_bytes = 1024 * kMega, .backing = Backing::none}};
  SimulatedDriver& driver = captures.driver;
  CachingAllocator allocator{
      {.driver = &captures.api, .options = AllocatorOptions::parse("oom_dump:off,policy:paged,decay_ms:10000")}};
};

TEST_F(PagedDecay, WhatNobodyUsedGoesBackAfterThatTime) {
  give(take(100 * kMega));
  go_on(9);
  EXPECT_GE(reserved_mebibytes(), 100);
  go_on(7);
  EXPECT_EQ(reserved_mebibytes(), 2);
  EXPECT_EQ(driver.used_bytes(), 2 * kMega);
  EXPECT_EQ(driver.host_synchronizations(), 0U);
  EXPECT_EQ(allocator.memory_stats().num_sync_all_streams, 0);
  EXPECT_GT(allocator.memory_stats().num_device_free, 0);
  allocator.check();
  give(take(100 * kMega));
  allocator.check();
}

// What is freed just before a look was used until then, whenever it was taken.
TEST_F(PagedDecay, TheTimeBeginsWithTheFree) {
  void* block = take(100 * kMega);
  go_on(34);
  give(block);
  go_on(9);
  EXPECT_GE(reserved_mebibytes(), 100);
  go_on(7);
  EXPECT_EQ(reserved_mebibytes(), 2);
}

TEST_F(PagedDecay, WhatIsUsedNowAndThenStays) {
  for (int i = 0; i < 10; ++i) {
    give(take(100 * kMega));
    go_on(6);
  }
  EXPECT_GE(reserved_mebibytes(), 100);
  const std::uint64_t calls = driver.calls("cuMemCreate");
  give(take(100 * kMega));
  EXPECT_EQ(driver.calls("cuMemCreate"), calls);
}

// Steps of nine seconds on two streams. The first one has more than those that follow.
TEST_F(PagedDecay, StepsThatComeAgainSoonerMakeNoDriverCall) {
  const StreamHandle side = driver.create_stream();
  const auto run_step = [&] {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < 12; ++i) {
      blocks.push_back(take((3 + 5 * i % 7) * kMega, i % 3 == 0 ? side : nullptr));
      if (i % 4 == 3) {
        give(blocks[i / 2]);
        blocks[i / 2] = nullptr;
      }
      now += kSecond * 3 / 4;
    }
    for (void* block : blocks)
      if (block != nullptr) give(block);
  };
  give(take(300 * kMega));
  for (int i = 0; i < 6; ++i) run_step();
  EXPECT_LT(reserved_mebibytes(), 100);
  const std::uint64_t calls = calls_of_memory_and_events();
  for (int i = 0; i < 30; ++i) run_step();
  EXPECT_EQ(calls_of_memory_and_events(), calls);
}

// One page is in use: the others of 100 MiB go.
TEST_F(PagedDecay, AHandleThatIsPartlyInUseStays) {
  std::vector<void*> blocks;
  for (int i = 0; i < 50; ++i) blocks.push_back(take(2 * kMega));
  for (std::size_t i = 0; i < blocks.size(); ++i)
    if (i != 20) give(blocks[i]);
  go_on(20);
  EXPECT_LE(reserved_mebibytes(), 6);
  EXPECT_GE(reserved_mebibytes(), 4);
  allocator.check();
  give(blocks[20]);
  go_on(20);
  EXPECT_LE(reserved_mebibytes(), 4);
}

TEST_F(PagedDecay, WhatWorkStillUsesIsNotWaitedFor) {
  const StreamHandle side = driver.create_stream();
  give(take_and_use(100 * kMega, side));
  go_on(60);
  EXPECT_GE(reserved_mebibytes(), 100);
  EXPECT_EQ(driver.host_synchronizations(), 0U);
  driver.run_until_idle();
  go_on(30);
  EXPECT_EQ(reserved_mebibytes(), 2);
  EXPECT_EQ(driver.host_synchronizations(), 0U);
}

// The driver may wait for all of the device's work in an unmap.
TEST_F(PagedDecay, WhatIsFreeWaitsForOtherStreamsForAsLongAgain) {
  const StreamHandle busy = driver.create_stream();
  void* block = take_and_use(10 * kMega, busy);
  give(take(100 * kMega));
  go_on(18);
  EXPECT_GE(reserved_mebibytes(), 110);
  EXPECT_EQ(driver.host_synchronizations(), 0U);
  go_on(10);
  EXPECT_LT(reserved_mebibytes(), 20);
  give(block);
}

// Between the events and their end the memory is used again.
TEST_F(PagedDecay, WhatIsUsedWhileItIsAwaitedStays) {
  const StreamHandle side = driver.create_stream();
  give(take_and_use(100 * kMega, side));
  go_on(15);
  give(take(100 * kMega, side));
  driver.run_until_idle();
  go_on(5);
  EXPECT_GE(reserved_mebibytes(), 100);
  go_on(15);
  EXPECT_EQ(reserved_mebibytes(), 2);
}

TEST_F(PagedDecay, APendingFreeIsInUse) {
  const StreamHandle side = driver.create_stream();
  void* block = take(100 * kMega);
  driver.launch(side, {{block, 100 * kMega}}, {}, 1ms, [] {});
  allocator.record_stream(block, side);
  give(block);
  go_on(40);
  EXPECT_GE(reserved_mebibytes(), 100);
  driver.run_until_idle();
  go_on(9);
  EXPECT_GE(reserved_mebibytes(), 100);
  go_on(7);
  EXPECT_LE(reserved_mebibytes(), 4);
  EXPECT_EQ(driver.host_synchronizations(), 0U);
}

// Those are served with the lock of their stream alone.
TEST_F(PagedDecay, RequestsThatAreKnownLookNowAndThen) {
  give(take(100 * kMega));
  for (int i = 0; i < 3; ++i) give(take(kMega / 4));
  const auto run = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      void* first = take(kMega / 4);
      void* second = take(kMega / 2);
      give(first);
      give(second);
      now += kSecond / 10;
    }
  };
  run(90);
  EXPECT_GE(reserved_mebibytes(), 100);
  run(90);
  EXPECT_EQ(reserved_mebibytes(), 2);
}

TEST_F(PagedDecay, OneRequestAfterALongTimeIsTheFirstLook) {
  give(take(100 * kMega));
  go_on(4);
  now += 1000 * kSecond;
  go_on(1);
  EXPECT_EQ(reserved_mebibytes(), 2);
}

TEST_F(PagedDecay, NothingGoesDuringACapture) {
  const StreamHandle side = driver.create_stream();
  give(take(100 * kMega));
  allocator.begin_allocate_to_pool(0, {1, 0}, PoolFilter::stream(side));
  captures.begin_capture(side, 1);
  go_on(30);
  EXPECT_GE(reserved_mebibytes(), 100);
  captures.end_capture(side);
  allocator.end_allocate_to_pool(0, {1, 0});
  go_on(6);
  EXPECT_EQ(reserved_mebibytes(), 2);
  EXPECT_FALSE(captures.invalidated());
}

TEST_F(PagedDecay, PoolsKeepTheirMemory) {
  const MemPool pool(allocator);
  allocator.deallocate(pool.allocate(100 * kMega, nullptr));
  go_on(60);
  EXPECT_EQ(reserved_mebibytes(), 102);
}

TEST_F(PagedDecay, ItCanBeTurnedOnAndOff) {
  allocator.set_options("policy:paged,decay_ms:off");
  give(take(100 * kMega));
  go_on(100);
  EXPECT_GE(reserved_mebibytes(), 100);
  const std::uint64_t calls = driver.calls();
  allocator.set_options("policy:paged,decay_ms:2000");
  go_on(1);
  EXPECT_GE(reserved_mebibytes(), 100);
  EXPECT_EQ(driver.calls(), calls);
  go_on(4);
  EXPECT_EQ(reserved_mebibytes(), 2);
}

TEST_F(PagedDecay, AShorterTimeCountsAtOnce) {
  allocator.set_options("policy:paged,decay_ms:10000000");
  go_on(1);
  give(take(100 * kMega));
  allocator.set_options("policy:paged,decay_ms:2000");
  go_on(4);
  EXPECT_EQ(reserved_mebibytes(), 2);
}

TEST_F(PagedDecay, WhatTheDriverRefusesIsFreeMemoryAndAskedForAgain) {
  void* const block = take(100 * kMega);
  give(block);
  driver.fail_call("cuMemUnmap", 1, CUDA_ERROR_LAUNCH_FAILED);
  go_on(13);
  EXPECT_EQ(driver.faults_injected(), 1U);
  EXPECT_GT(reserved_mebibytes(), 2);
  allocator.check();
  go_on(4);
  EXPECT_EQ(reserved_mebibytes(), 2);
  allocator.check();
}

// A stream that ended has an event of its own, and one that is gone without a word none.
TEST_F(PagedDecay, StreamsThatAreOverHoldNobodyUp) {
  const StreamHandle ended = driver.create_stream();
  const StreamHandle gone = driver.create_stream();
  for (void* block : {take(50 * kMega, ended), take(70 * kMega, gone), take(100 * kMega)}) give(block);
  allocator.release_stream(ended);
  driver.destroy_stream(ended);
  driver.destroy_stream(gone);
  go_on(16);
  EXPECT_EQ(reserved_mebibytes(), 72);
  allocator.check();
  allocator.empty_cache();
  EXPECT_EQ(reserved_mebibytes(), 2);
}

// The driver has addresses for few mappings: what segments serve looks, too.
TEST(PagedDecayWithoutAddresses, SegmentsLook) {
  std::int64_t now = 0;
  SimulatedDriver driver({.capacity_bytes = 1024 * kMega, .backing = Backing::none});
  DriverApi api = driver.api();
  api.host_clock = {&now, [](void* self) { return *static_cast<std::int64_t*>(self); }};
  CachingAllocator allocator(
      {.driver = &api, .options = AllocatorOptions::parse("oom_dump:off,policy:paged,decay_ms:10000")});
  void* const paged = allocator.allocate(100 * kMega, nullptr);
  // Of the other stream's own range of addresses.
  const StreamHandle side = driver.create_stream();
  allocator.deallocate(allocator.allocate(30 * kMega, side));
  driver.fail_call("cuMemAddressReserve", 1, CUDA_ERROR_OUT_OF_MEMORY);
  const StreamHandle third = driver.create_stream();
  void* const segment = allocator.allocate(kMega, third);
  EXPECT_EQ(driver.faults_injected(), 1U);
  allocator.deallocate(paged);
  for (int i = 0; i < 1000; ++i) {
    allocator.deallocate(allocator.allocate(kMega, third));
    now += kSecond / 40;
  }
  EXPECT_LT(allocator.memory_stats().reserved_bytes.all.current, 30 * std::int64_t{kMega});
  allocator.deallocate(segment);
}

}  // namespace
}  // namespace cistern
