// Paged memory on a device or under a limit that is nearly used up.

#include <cistern/error.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/allocator/paged_fixture.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

TEST_F(PagedSmallDevice, AFullDeviceServesWithWhatIsFree) {
  const StreamHandle side = driver.create_stream();
  std::vector<void*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(take(2 * kMega, i % 2 == 0 ? nullptr : side));
  for (std::size_t i = 0; i < 16; i += 4) give(blocks[i]);
  for (std::size_t i = 1; i < 16; i += 4) give(blocks[i]);
  work(blocks[3], 2 * kMega, side);
  void* gathered = take(16 * kMega);
  EXPECT_EQ(allocator.memory_stats().num_alloc_retries, 0);
  EXPECT_EQ(driver.host_synchronizations(), 0U);
  work(gathered, 16 * kMega, nullptr);
  driver.run_until_idle();
  judge();
}

// Four pages of five, between the free end of one that is in use and the free beginning of another.
TEST_F(PagedSmallDevice, WhatTheDriverHasLeftServesBesideFragments) {
  std::vector<void*> small;
  for (int i = 0; i < 4; ++i) small.push_back(take(kMega));
  take(20 * kMega);
  give(small[1]);
  give(small[2]);
  EXPECT_NE(take(10 * kMega), nullptr);
  EXPECT_EQ(reserved(), mebibytes(32));
  EXPECT_EQ(allocator.memory_stats().num_alloc_retries, 0);
  judge();
}

class PagedSmallDeviceOf64Pages : public Paged {
 protected:
  PagedSmallDeviceOf64Pages() : Paged(128 * kMega) {}
};

// Below the peak of before all twenty pages are asked of the driver, which has nineteen left now: too many for a window
// that fragments would be spent on before.
TEST_F(PagedSmallDeviceOf64Pages, WhatTheDriverHasLeftServesThoughItRefusedMore) {
  give(take(120 * kMega));
  allocator.empty_cache();
  std::vector<void*> small;
  for (int i = 0; i < 4; ++i) small.push_back(take(kMega));
  take(10 * kMega);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle outside = 0;
  ASSERT_EQ(driver.api().mem_create(&outside, 76 * kMega, &properties, 0), CUDA_SUCCESS);
  give(small[1]);
  give(small[2]);
  EXPECT_NE(take(40 * kMega), nullptr);
  EXPECT_EQ(reserved(), mebibytes(52));
  EXPECT_EQ(allocator.memory_stats().num_alloc_retries, 0);
  allocator.check();
  ASSERT_EQ(driver.api().mem_release(outside), CUDA_SUCCESS);
  judge();
}

TEST_F(PagedSmallDevice, WhatCannotBeServedIsReported) {
  take(30 * kMega);
  try {
    take(4 * kMega);
    FAIL() << "the device has no room for this";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.report().cause, OutOfMemoryCause::device_full);
    EXPECT_EQ(error.report().allocated_bytes, 30 * kMega);
  }
  judge();
}

TEST_F(PagedSmallDevice, WhatTheDeviceCannotHoldIsAskedOfNobody) {
  give(take(kMega));
  const auto calls_of_memory = [this] {
    auto calls = driver.calls_by_name();
    return calls["cuMemCreate"] + calls["cuMemAddressReserve"] + calls["cuMemMap"];
  };
  const auto before = calls_of_memory();
  try {
    take(std::size_t{1} << 40);
    FAIL() << "1 TiB were served";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.report().cause, OutOfMemoryCause::too_large);
    EXPECT_EQ(error.report().requested_bytes, std::size_t{1} << 40);
  }
  EXPECT_EQ(calls_of_memory(), before);
  EXPECT_EQ(allocator.memory_stats().num_ooms, 1);
  EXPECT_EQ(allocator.memory_stats().num_alloc_retries, 1);
  judge();
}

TEST_F(PagedSmallDevice, PendingFreesAreAwaitedBeforeTheRequestFails) {
  const StreamHandle side = driver.create_stream();
  void* block = take(24 * kMega);
  driver.occupy(side, std::chrono::milliseconds(1));
  allocator.record_stream(block, side);
  give(block);
  EXPECT_NE(take(20 * kMega), nullptr);
  EXPECT_EQ(allocator.memory_stats().num_alloc_retries, 0) << "the device waits";
  EXPECT_EQ(driver.host_synchronizations(), 0U);
  judge();
}

TEST_F(PagedSmallDevice, WhereStreamsAreNotToWaitAFlushAwaitsPendingFrees) {
  allocator.set_options("stream_hand_over:done");
  const StreamHandle side = driver.create_stream();
  void* block = take(24 * kMega);
  driver.occupy(side, std::chrono::milliseconds(1));
  allocator.record_stream(block, side);
  give(block);
  EXPECT_NE(take(20 * kMega), nullptr);
  EXPECT_EQ(allocator.memory_stats().num_alloc_retries, 1);
  judge();
}

class PagedLimit : public Paged {
 protected:
  PagedLimit() : Paged(64 * kMega, "oom_dump:off,policy:paged,per_process_memory_fraction:0.5") {}
};

TEST_F(PagedLimit, TheFractionIsKept) {
  void* block = take(20 * kMega);
  EXPECT_THROW(take(20 * kMega), OutOfMemoryError);
  EXPECT_LE(reserved(), mebibytes(32));
  give(block);
  EXPECT_NE(take(30 * kMega), nullptr);
  EXPECT_LE(reserved(), mebibytes(32));
  judge();
}

// 64 MiB may be held, and above 32 MiB free handles are garbage.
class PagedCollected : public Paged {
 protected:
  PagedCollected()
      : Paged(128 * kMega,
              "oom_dump:off,policy:paged,per_process_memory_fraction:0.5,garbage_collection_threshold:0.5") {}
};

TEST_F(PagedCollected, FreeHandlesAboveTheThresholdGoBackBeforeMemoryIsCreated) {
  void* kept = take(8 * kMega);
  void* freed = take(32 * kMega);
  const StreamHandle side = driver.create_stream();
  give(freed);
  EXPECT_EQ(reserved(), mebibytes(40));
  EXPECT_EQ(allocator.memory_stats().num_device_free, 0) << "nothing is created: nothing is collected";
  void* other = take(48 * kMega, side);
  EXPECT_GE(allocator.memory_stats().num_device_free, 1);
  EXPECT_LE(reserved(), mebibytes(64));
  EXPECT_EQ(allocator.memory_stats().num_alloc_retries, 0) << "no flush was needed";
  judge();
  give(other);
  give(kept);
}

TEST_F(PagedCollected, BelowTheThresholdNothingGoesBack) {
  give(take(16 * kMega));
  give(take(30 * kMega));
  EXPECT_EQ(allocator.memory_stats().num_device_free, 0);
  judge();
}

TEST_F(PagedLimit, AFractionThatIsLoweredHoldsForWhatComes) {
  void* block = take(20 * kMega);
  allocator.set_memory_fraction(0.25);
  EXPECT_THROW(take(4 * kMega), OutOfMemoryError);
  give(block);
  EXPECT_NE(take(16 * kMega), nullptr);
  EXPECT_LE(reserved(), mebibytes(20));
  allocator.set_memory_fraction(1.0);
  EXPECT_NE(take(40 * kMega), nullptr);
  judge();
}

}  // namespace
}  // namespace cistern
