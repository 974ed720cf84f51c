// What a snapshot shows while memory is on its way from the driver, or back to it.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <gtest/gtest.h>

#include <vector>

#include "runtime/driver_api.h"
#include "tests/byte_units.h"
#include "tests/history/trace_replay.h"

namespace cistern {
namespace {

constexpr std::size_t kLargePage = 20 * kMega;

// A driver that takes a snapshot in the middle of each map, unmap and free.
struct Interrupted {
  explicit Interrupted(const DriverApi& inner) : driver(inner), api(inner) {
    api.mem_map = {this, [](void* self, CUdeviceptr pointer, std::size_t bytes, std::size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags) {
                     auto& me = *static_cast<Interrupted*>(self);
                     const CUresult result = me.driver.mem_map(pointer, bytes, offset, handle, flags);
                     me.take();
                     return result;
                   }};
    api.mem_unmap = {this, [](void* self, CUdeviceptr pointer, std::size_t bytes) {
                       auto& me = *static_cast<Interrupted*>(self);
                       const CUresult result = me.driver.mem_unmap(pointer, bytes);
                       me.take();
                       return result;
                     }};
    api.mem_free = {this, [](void* self, CUdeviceptr pointer) {
                      auto& me = *static_cast<Interrupted*>(self);
                      const CUresult result = me.driver.mem_free(pointer);
                      me.take();
                      return result;
                    }};
  }
  void take() {
    if (allocator != nullptr) snapshots.push_back(allocator->snapshot());
  }

  const DriverApi& driver;
  DriverApi api;
  CachingAllocator* allocator = nullptr;
  std::vector<Snapshot> snapshots;
};

TEST(HistoryMeanwhile, PagesAreInSnapshotsWhenTheyHaveComeAndUntilTheyHaveGone) {
  SimulatedDriver driver({.capacity_bytes = 400 * kMega, .backing = Backing::none});
  Interrupted interrupted(driver.api());
  CachingAllocator allocator(
      {.driver = &interrupted.api, .options = AllocatorOptions::parse("oom_dump:off,policy:expandable")});
  static_cast<void>(allocator.allocate(kLargePage));
  interrupted.allocator = &allocator;
  void* middle = allocator.allocate(2 * kLargePage);
  ASSERT_EQ(interrupted.snapshots.size(), 2U) << "a page at a time";
  EXPECT_EQ(interrupted.snapshots[1].segments.at(0).total_size, static_cast<std::int64_t>(kLargePage));
  static_cast<void>(allocator.allocate(kLargePage));
  allocator.deallocate(middle);
  interrupted.snapshots.clear();
  allocator.empty_cache();
  ASSERT_EQ(interrupted.snapshots.size(), 2U);
  interrupted.allocator = nullptr;
  for (const Snapshot& snapshot : interrupted.snapshots) {
    ASSERT_EQ(snapshot.segments.size(), 1U) << "pages that follow each other are one segment";
    EXPECT_EQ(snapshot.segments[0].total_size, static_cast<std::int64_t>(4 * kLargePage));
    EXPECT_EQ(snapshot.segments[0].allocated_size, static_cast<std::int64_t>(2 * kLargePage));
    EXPECT_EQ(TraceReplay(snapshot.device_traces.at(0)).difference_from(snapshot), "");
    EXPECT_EQ(snapshot.device_stats.at(0).reserved_bytes.all.current, static_cast<std::int64_t>(4 * kLargePage));
  }
  EXPECT_EQ(allocator.snapshot().segments.size(), 2U);
}

TEST(HistoryMeanwhile, ASegmentIsInNoSnapshotFromItsEntryOn) {
  SimulatedDriver driver({.capacity_bytes = 400 * kMega, .backing = Backing::none});
  Interrupted interrupted(driver.api());
  CachingAllocator allocator(
      {.driver = &interrupted.api, .options = AllocatorOptions::parse("oom_dump:off,policy:classic")});
  static_cast<void>(allocator.allocate(1000));
  allocator.deallocate(allocator.allocate(30 * kMega));
  interrupted.allocator = &allocator;
  allocator.empty_cache();
  interrupted.allocator = nullptr;
  ASSERT_EQ(interrupted.snapshots.size(), 1U);
  const Snapshot& snapshot = interrupted.snapshots[0];
  EXPECT_EQ(snapshot.segments.size(), 1U);
  EXPECT_EQ(TraceReplay(snapshot.device_traces.at(0)).difference_from(snapshot), "");
  EXPECT_EQ(snapshot.device_stats.at(0).reserved_bytes.all.current, 2 * static_cast<std::int64_t>(kMega));
  EXPECT_EQ(snapshot.device_stats[0].segment.all.current, 1);
}

// The stack of a request that asks the driver is gathered before: off is off all the same.
TEST(HistoryMeanwhile, WhatIsTurnedOffWhileTheDriverIsAskedKeepsNoStack) {
  SimulatedDriver driver({.capacity_bytes = 400 * kMega, .backing = Backing::none});
  struct Asked {
    const DriverApi& driver;
    CachingAllocator* allocator;
  } asked{driver.api(), nullptr};
  DriverApi api = driver.api();
  api.mem_alloc = {&asked, [](void* self, CUdeviceptr* pointer, std::size_t bytes) {
                     const auto& me = *static_cast<Asked*>(self);
                     if (me.allocator != nullptr) me.allocator->record_history({.enabled = HistoryEnabled::none});
                     return me.driver.mem_alloc(pointer, bytes);
                   }};
  CachingAllocator allocator({.driver = &api, .options = AllocatorOptions::parse("policy:classic")});
  HistoryOptions history;
  history.context = HistoryContext::all;
  allocator.record_history(history);
  static_cast<void>(allocator.allocate(1000));
  EXPECT_GT(allocator.history_info().stacks, 0U);
  asked.allocator = &allocator;
  static_cast<void>(allocator.allocate(kLargePage));
  const Snapshot snapshot = allocator.snapshot();
  EXPECT_TRUE(snapshot.stacks.empty());
  for (const SegmentInfo& segment : snapshot.segments) {
    EXPECT_EQ(segment.stack, kNoStack);
    for (const BlockInfo& block : segment.blocks) EXPECT_EQ(block.stack, kNoStack);
  }
}

}  // namespace
}  // namespace cistern
