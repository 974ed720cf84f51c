// Garbage collection by age beside hits that take no lock of the heap: which segments have not been wanted for longest?
#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

class SegmentAges : public ::testing::Test {
 protected:
  explicit SegmentAges(const char* policy = "classic") : policy_(policy) {
    if (policy_ == "paged") take_addresses();
    bring_segments();
  }
  // A step that wants two of the three segments, often enough to be known.
  void steps(int count) {
    for (; count > 0; --count) {
      void* const first = allocator_.allocate(kFirst);
      void* const second = allocator_.allocate(kSecond);
      allocator_.deallocate(first);
      allocator_.deallocate(second);
    }
  }
  void pair(std::size_t bytes, StreamHandle stream = nullptr) {
    allocator_.deallocate(allocator_.allocate(bytes, stream));
  }
  // In the middle of them another stream wants a segment once, with which it is as old as half of them.
  void steps_beside_another_stream() {
    for (int i = 0; i < 5; ++i) pair(kOfOther, other_);
    steps(2500);
    pair(kOfOther, other_);
    steps(2500);
  }
  void expect_steps_to_have_their_segments() const {
    EXPECT_TRUE(has_segment_of(kFirst));
    EXPECT_TRUE(has_segment_of(kSecond));
    EXPECT_FALSE(has_segment_of(kThird));
    EXPECT_FALSE(has_segment_of(kOfOther));
  }
  // By a request that no free segment serves, where more than 82 MiB are held.
  void collect() { static_cast<void>(allocator_.allocate(60 * kMega)); }
  void begin_to_collect() { allocator_.set_memory_fraction(0.25); }
  void end_to_collect() { allocator_.set_memory_fraction(1.0); }
  [[nodiscard]] bool has_segment_of(std::size_t bytes) const {
    const std::vector<SegmentInfo> segments = allocator_.snapshot().segments;
    return std::any_of(segments.begin(), segments.end(), [&](const SegmentInfo& segment) {
      return segment.total_size == static_cast<std::int64_t>(bytes);
    });
  }

  static constexpr std::size_t kFirst = 30 * kMega;
  static constexpr std::size_t kSecond = 32 * kMega;
  static constexpr std::size_t kThird = 34 * kMega;
  static constexpr std::size_t kOfOther = 36 * kMega;

 private:
  void bring_segments() {
    // Far below the peaks no stream asks for room, with which all of them are looked at.
    pair(400 * kMega);
    allocator_.empty_cache();
    std::vector<void*> blocks;
    for (const std::size_t bytes : {kFirst, kSecond, kThird}) blocks.push_back(allocator_.allocate(bytes));
    for (void* const block : blocks) allocator_.deallocate(block);
  }

  // All of them: segments serve.
  void take_addresses() {
    for (const std::size_t bytes : {2 * kMega << 10, 2 * kMega}) {
      CUdeviceptr address = 0;
      while (driver_.api().mem_address_reserve(&address, bytes, 0, 0, 0) == CUDA_SUCCESS) continue;
    }
  }

  const std::string policy_;
  SimulatedDriver driver_{{.capacity_bytes = 4096 * kMega, .backing = Backing::none}};

 protected:
  const StreamHandle other_ = driver_.create_stream();
  CachingAllocator allocator_{
      {.driver = &driver_.api(),
       .options = AllocatorOptions::parse("oom_dump:off,garbage_collection_threshold:0.08,policy:" + policy_)}};
};

class SegmentAgesBesidePages : public SegmentAges {
 protected:
  SegmentAgesBesidePages() : SegmentAges("paged") {}
};

TEST_F(SegmentAgesBesidePages, WhatIsWantedIsYoung) {
  begin_to_collect();
  for (int i = 0; i < 1000; ++i) pair(kThird);
  collect();
  EXPECT_FALSE(has_segment_of(kFirst));
  EXPECT_TRUE(has_segment_of(kThird));
}

TEST_F(SegmentAges, WhatStepsWantIsYoung) {
  begin_to_collect();
  steps_beside_another_stream();
  collect();
  expect_steps_to_have_their_segments();
}

TEST_F(SegmentAges, SoItIsWhereStepsWereKnownBefore) {
  steps(5000);
  begin_to_collect();
  steps_beside_another_stream();
  collect();
  expect_steps_to_have_their_segments();
}

// It is as old as when it was freed, whoever freed it.
TEST_F(SegmentAges, WhatAnotherThreadFreedIsOfItsTime) {
  for (int i = 0; i < 5; ++i) pair(kOfOther, other_);
  begin_to_collect();
  steps(100);
  void* const block = allocator_.allocate(kThird);
  std::thread([&] {
    allocator_.deallocate(block);
    for (int i = 0; i < 1000; ++i) pair(kOfOther, other_);
  }).join();
  collect();
  EXPECT_FALSE(has_segment_of(kThird));
  EXPECT_TRUE(has_segment_of(kOfOther));
}

// Of a pair that the next request has carried out.
TEST_F(SegmentAges, WhatCameAndWentLastIsTheYoungest) {
  begin_to_collect();
  steps(100);
  pair(kThird);
  pair(kKibi);
  collect();
  EXPECT_FALSE(has_segment_of(kFirst));
  EXPECT_FALSE(has_segment_of(kSecond));
  EXPECT_TRUE(has_segment_of(kThird));
}

TEST_F(SegmentAges, WhatIsWantedWhileNothingIsCollectedIsYoung) {
  begin_to_collect();
  steps(100);
  pair(kThird);  // searches once more than the second had seen
  end_to_collect();
  pair(kFirst);
  begin_to_collect();
  collect();
  EXPECT_TRUE(has_segment_of(kFirst));
  EXPECT_FALSE(has_segment_of(kSecond));
  EXPECT_TRUE(has_segment_of(kThird));
}

}  // namespace
}  // namespace cistern
