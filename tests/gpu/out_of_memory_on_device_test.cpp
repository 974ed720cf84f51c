// Refusals, and that they harm nothing.

#include <algorithm>
#include <vector>

#include "tests/gpu/heap_on_device.h"

namespace cistern {
namespace {

class OutOfMemoryOnDevice : public HeapOnDevice {
 protected:
  void TearDown() override {
    set_memory_fraction(1.0);
    HeapOnDevice::TearDown();
  }
};

TEST_F(OutOfMemoryOnDevice, MoreThanTheDeviceHasIsRefusedAndTheHeapGoesOn) {
  const Stream stream = Stream::create();
  DeviceBuffer<unsigned char> live(4096, stream);
  fill_async(live.data(), 7, live.size(), stream);

  const std::size_t too_much = memory_info().total + kGiB;
  try {
    void* block = allocate(too_much, stream);
    deallocate(block);
    FAIL() << too_much << " bytes were allocated on a device that has fewer";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.report().cause, OutOfMemoryCause::too_large) << error.what();
    EXPECT_EQ(error.report().requested_bytes, too_much);
    EXPECT_EQ(error.report().device_total_bytes, memory_info().total);
  }
  EXPECT_EQ(memory_stats().num_ooms, 1);

  void* block = allocate(64 * kMiB, stream);
  EXPECT_NE(block, nullptr);
  deallocate(block);
  std::vector<unsigned char> bytes(live.size());
  copy_async(bytes.data(), live.data(), bytes.size(), stream);
  stream.synchronize();
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 7), static_cast<std::ptrdiff_t>(bytes.size()));
}

TEST_F(OutOfMemoryOnDevice, WhatIsCachedIsGivenBackBeforeARequestIsRefused) {
  // Cached blocks of half of what is free, then a request of three quarters of it.
  const std::size_t free_before = memory_info().free / (2 * kMiB) * (2 * kMiB);
  deallocate(allocate(free_before / 2));
  const std::int64_t retries_before = memory_stats().num_alloc_retries;
  void* block = allocate(free_before / 4 * 3);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(memory_stats().num_alloc_retries, retries_before + 1);
  EXPECT_EQ(memory_stats().num_ooms, 0);
  deallocate(block);
}

TEST_F(OutOfMemoryOnDevice, TheMemoryFractionIsALimitOfItsOwn) {
  const std::size_t total = memory_info().total;
  set_memory_fraction(static_cast<double>(256 * kMiB) / static_cast<double>(total));
  void* block = allocate(128 * kMiB);
  try {
    deallocate(allocate(256 * kMiB));
    FAIL() << "the limit was passed";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.report().cause, OutOfMemoryCause::limit) << error.what();
    EXPECT_EQ(error.report().allocated_bytes, 128 * kMiB);
  }
  set_memory_fraction(1.0);
  deallocate(allocate(256 * kMiB));
  deallocate(block);
}

TEST_F(OutOfMemoryOnDevice, TheReportAddsUp) {
  void* live = allocate(48 * kMiB);
  deallocate(allocate(64 * kMiB));
  try {
    deallocate(allocate(memory_info().total + kGiB));
    FAIL() << "was allocated";
  } catch (const OutOfMemoryError& error) {
    const OutOfMemoryReport& r = error.report();
    EXPECT_EQ(r.device_total_bytes, r.device_free_bytes + r.outside_bytes + r.reserved_bytes);
    EXPECT_EQ(r.reserved_bytes, r.allocated_bytes + r.pending_free_bytes + r.free_split_bytes + r.free_whole_bytes);
    EXPECT_EQ(r.allocated_bytes, 48 * kMiB);
  }
  deallocate(live);
}

}  // namespace
}  // namespace cistern
