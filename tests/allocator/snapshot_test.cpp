// Snapshots show what is there, and the report adds up.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <string>

#include "allocator/device_cut.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

TEST(SnapshotTest, SegmentsAreInAddressOrderAndTheirFiguresAddUp) {
  SimulatedDriver driver({.capacity_bytes = 512 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse("policy:classic")});
  const StreamHandle side = driver.create_stream();
  static_cast<void>(allocator.allocate(1000));
  void* freed = allocator.allocate(3 * kMega);
  void* pending = allocator.allocate(5 * kMega);
  static_cast<void>(allocator.allocate(700000, side));
  allocator.deallocate(freed);
  driver.occupy(side, 1ms);
  allocator.deallocate(pending, side);

  const Snapshot snapshot = allocator.snapshot();
  ASSERT_EQ(snapshot.segments.size(), 3U);
  std::uint64_t last = 0;
  std::int64_t reserved = 0;
  for (const SegmentInfo& segment : snapshot.segments) {
    EXPECT_GT(segment.address, last);
    last = segment.address;
    reserved += segment.total_size;
    std::int64_t sum = 0;
    for (const BlockInfo& block : segment.blocks) {
      EXPECT_EQ(block.address, segment.address + static_cast<std::uint64_t>(sum));
      sum += block.size;
    }
    EXPECT_EQ(sum, segment.total_size);
  }
  EXPECT_EQ(reserved, snapshot.device_stats.at(0).reserved_bytes.all.current);
  const SegmentInfo& large = snapshot.segments.at(1);
  EXPECT_TRUE(large.is_large);
  EXPECT_EQ(large.stream, 0);
  EXPECT_EQ(large.allocated_size, 0);
  EXPECT_EQ(large.active_size, static_cast<std::int64_t>(5 * kMega));
  EXPECT_EQ(large.requested_size, static_cast<std::int64_t>(5 * kMega));
  EXPECT_EQ(snapshot.segments.at(2).stream, static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(side)));
}

TEST(SnapshotTest, SettingsAreThoseInForce) {
  SimulatedDriver driver({.capacity_bytes = 64 * kMega, .backing = Backing::none});
  const char* text = "max_split_size_mb:64,garbage_collection_threshold:0.5,roundup_power2_divisions:[4:2,>:8]";
  CachingAllocator allocator(
      {.driver = &driver.api(), .options = AllocatorOptions::parse(text, AllocatorOptions::parse("policy:classic"))});
  const AllocatorSettings settings = allocator.snapshot().settings;
  EXPECT_EQ(settings.text, text);
  EXPECT_EQ(settings.max_split_size, static_cast<std::int64_t>(64 * kMega));
  EXPECT_EQ(settings.garbage_collection_threshold, 0.5);
  EXPECT_EQ(settings.roundup_power2_divisions.size(), 16U);
  EXPECT_EQ(settings.roundup_power2_divisions.at(1), 2);
  EXPECT_EQ(settings.roundup_power2_divisions.at(32768), 8);
}

TEST(SnapshotTest, TheReportNamesTheDevice) {
  SimulatedDriver driver({.capacity_bytes = 64 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse("policy:classic")});
  static_cast<void>(allocator.allocate(3 * kMega));
  EXPECT_NE(allocator.memory_report().find("simulated"), std::string::npos);
}

// Most heaps of short programs have written nothing down, or are told not to.
TEST(SnapshotTest, AnEmptyHistoryTakesNoMemory) {
  DeviceCut cut;
  cut.reserve({});
  EXPECT_FALSE(cut.history.entries.has_room_for(1));
  DeviceCut::Size size;
  size.history.entries = 1;
  cut.reserve(size);
  EXPECT_TRUE(cut.history.entries.has_room_for(1));
}

}  // namespace
}  // namespace cistern
