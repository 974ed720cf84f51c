#pragma once

// A heap of paged memory on a simulated device that watches for races, and what its tests ask of it.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/byte_units.h"

namespace cistern {

class Paged : public ::testing::Test {
 protected:
  static constexpr const char* kPaged = "oom_dump:off,policy:paged";
  [[nodiscard]] static std::int64_t mebibytes(std::int64_t count) { return count << 20; }

  explicit Paged(std::size_t capacity = 1024 * kMega, const char* options = kPaged)
      : driver({.capacity_bytes = capacity, .backing = Backing::none, .races = RaceMode::collect}),
        allocator({.driver = &driver.api(), .options = AllocatorOptions::parse(options)}) {}

  void* take(std::size_t bytes, StreamHandle stream = nullptr) { return allocator.allocate(bytes, stream); }
  void give(void* block) { allocator.deallocate(block); }
  void give_all(const std::vector<void*>& blocks) {
    for (void* block : blocks) give(block);
  }
  [[nodiscard]] std::int64_t reserved() const { return allocator.memory_stats().reserved_bytes.all.current; }
  // The heap is sound, a snapshot shows every reserved byte once, as its stream's, and no work raced.
  void judge() {
    allocator.check();
    std::int64_t shown = 0;
    std::map<std::int64_t, std::int64_t> by_stream;  // less what the figures say
    const Snapshot snapshot = allocator.snapshot();
    for (const SegmentInfo& segment : snapshot.segments) {
      shown += segment.total_size;
      by_stream[segment.stream] += segment.total_size;
      std::int64_t tiled = 0;
      for (const BlockInfo& block : segment.blocks) {
        EXPECT_EQ(block.address, segment.address + static_cast<std::uint64_t>(tiled));
        tiled += block.size;
      }
      EXPECT_EQ(tiled, segment.total_size);
    }
    EXPECT_EQ(shown, reserved());
    for (const StreamStats& stream : allocator.stream_stats()) by_stream[stream.stream] -= stream.reserved_bytes;
    for (const auto& [stream, difference] : by_stream) EXPECT_EQ(difference, 0) << "stream " << stream;
    EXPECT_EQ(driver.used_bytes(), static_cast<std::size_t>(reserved()));
    for (const RaceReport& report : driver.race_reports()) ADD_FAILURE() << report.to_string();
  }
  // Work of the stream on the block.
  void work(void* block, std::size_t bytes, StreamHandle stream) {
    driver.launch(stream, {}, {{block, bytes}}, std::chrono::milliseconds(1), [] {});
  }

  // A stream that ends with work on `bytes` that it freed; unless told, the allocator does not know that it ends.
  void end_a_stream_at_work(std::size_t bytes, bool is_told) {
    const StreamHandle stream = driver.create_stream();
    void* block = take(bytes, stream);
    work(block, bytes, stream);
    give(block);
    if (is_told) allocator.release_stream(stream);
    driver.destroy_stream(stream);
  }

  SimulatedDriver driver;
  CachingAllocator allocator;
};

class PagedSmallDevice : public Paged {
 protected:
  PagedSmallDevice() : Paged(32 * kMega) {}
};

}  // namespace cistern
