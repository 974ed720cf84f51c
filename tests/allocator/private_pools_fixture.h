#pragma once

// A heap whose driver knows captures, and how a framework captures into a pool of it.

#include <cistern/allocator.h>

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/allocator/capturing_driver.h"
#include "tests/byte_units.h"

namespace cistern {

inline constexpr PoolId kGraph{7, 0};
inline constexpr PoolId kShared{0, 7};

class PrivatePoolsTest : public ::testing::Test {
 protected:
  explicit PrivatePoolsTest(const char* options = "oom_dump:off")
      : allocator_({.driver = &captures_.api,
                    .options = AllocatorOptions::parse(options, AllocatorOptions::parse("policy:classic"))}) {}

  ~PrivatePoolsTest() override {
    EXPECT_NO_THROW(allocator_.check());
    EXPECT_FALSE(captures_.invalidated()) << "a call of the allocator's ended a capture";
  }

  PoolId pool_of(void* pointer) const {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    for (const SegmentInfo& segment : allocator_.snapshot().segments)
      if (address >= segment.address && address < segment.address + static_cast<std::uint64_t>(segment.total_size))
        return {static_cast<std::uint64_t>(segment.segment_pool_id.first),
                static_cast<std::uint64_t>(segment.segment_pool_id.second)};
    ADD_FAILURE() << "no segment has that block";
    return {};
  }

  // A capture as a framework makes it: the stream is captured, its requests go to the pool.
  void begin_capture(PoolId id, std::uint64_t capture) {
    captures_.begin_capture(stream_, capture);
    allocator_.begin_allocate_to_pool(0, id, PoolFilter::capture(capture));
  }
  void end_capture(PoolId id) {
    allocator_.end_allocate_to_pool(0, id);
    captures_.end_capture(stream_);
  }

  CapturingDriver captures_{{.devices = 2, .capacity_bytes = 256 * kMega, .backing = Backing::none}};
  SimulatedDriver& driver_ = captures_.driver;
  CachingAllocator allocator_;
  const StreamHandle stream_ = driver_.create_stream();
  const StreamHandle other_ = driver_.create_stream();
};

}  // namespace cistern
