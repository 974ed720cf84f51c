// How many streams of a heap are awake: those that take turns, and no more than pay.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/device_allocator.h"
#include "allocator/wake_counts.h"
#include "tests/allocator/heap_of_streams.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

class ShownHeap : public DeviceAllocator {
 public:
  using DeviceAllocator::DeviceAllocator;
  [[nodiscard]] std::size_t awake() {
    const Section section(*this);
    return mutex_.streams().size();
  }
  // Of those, since it was looked last.
  [[nodiscard]] std::ptrdiff_t busy() {
    const Section section(*this);
    const std::vector<StreamHeap*>& streams = mutex_.streams();
    return std::count_if(streams.begin(), streams.end(), [](StreamHeap* heap) { return heap->has_served_alone; });
  }
};

class AwakeHeapTest : public HeapOfStreams<ShownHeap> {
 protected:
  AwakeHeapTest() : HeapOfStreams("oom_dump:off,policy:classic", {}) {}

  // Each has a block, for one that has none left is nobody's.
  [[nodiscard]] std::vector<StreamIdentity> streams(std::size_t count) {
    std::vector<StreamIdentity> all(count);
    for (StreamIdentity& each : all) {
      each = make_stream();
      static_cast<void>(take(512, each));
    }
    return all;
  }
  void turns(const std::vector<StreamIdentity>& streams, int times) {
    for (int i = 0; i < times; ++i)
      for (const StreamIdentity& stream : streams) HeapOfStreams::turns(stream, 1);
  }
  void miss(const StreamIdentity& stream, int times) {
    for (int i = 0; i < times; ++i) {
      pair(40 * kMega, stream);
      heap_.empty_cache();
    }
  }
};

TEST_F(AwakeHeapTest, AllThatTakeTurnsAreUpToABound) {
  for (const std::size_t count : {std::size_t{3}, std::size_t{20}, AwakeStreams::kMost}) {
    turns(streams(count), 100);
    EXPECT_GE(heap_.awake(), count);
    EXPECT_LE(heap_.awake(), AwakeStreams::kMost);
  }
}

TEST_F(AwakeHeapTest, OfMoreInTurnAFewAre) {
  turns(streams(100), 100);
  EXPECT_GE(heap_.awake(), 1U);
  EXPECT_LE(heap_.awake(), WakeCounts::kFew);
}

// None of those that are awake is idle at any look.
TEST_F(AwakeHeapTest, OfMoreInTurnAFewAreAlthoughAllAreBusy) {
  const std::vector<StreamIdentity> busy = streams(AwakeStreams::kMost);
  turns(busy, 10);
  EXPECT_EQ(heap_.awake(), AwakeStreams::kMost);
  const std::vector<StreamIdentity> others = streams(50);
  for (int i = 0; i < 50; ++i)
    for (const StreamIdentity& other : others) {
      pair(kKibi, other);
      for (const StreamIdentity& stream : busy) pair(kKibi, stream);
    }
  EXPECT_LE(heap_.awake(), WakeCounts::kFew);
}

TEST_F(AwakeHeapTest, WhereFewerTakeTurnsAgainAllAre) {
  turns(streams(100), 100);
  turns(streams(30), 200);
  EXPECT_GE(heap_.awake(), 30U);
}

TEST_F(AwakeHeapTest, ThoseThatComeAndGoAreNotManyInTurn) {
  turns(streams(100), 100);
  const std::vector<StreamIdentity> stay = streams(20);
  for (int i = 0; i < 600; ++i) {
    StreamUse brief;
    brief.stream = streams(1).front();
    pair(kKibi, brief.stream);
    heap_.end_stream(brief);
    for (const StreamIdentity& stream : stay) pair(kKibi, stream);
  }
  EXPECT_GE(heap_.awake(), stay.size());
}

TEST_F(AwakeHeapTest, WhoIsIdleIsNotWhereAnotherTakesTheHeapsLock) {
  const std::vector<StreamIdentity> twelve = streams(12);
  turns(twelve, 10);
  EXPECT_GE(heap_.awake(), 12U);
  miss(streams(1).front(), 1000);
  EXPECT_LT(heap_.awake(), WakeCounts::kFew);
}

TEST_F(AwakeHeapTest, WhoIsIdleIsNotWhereAPrivatePoolTakesTheHeapsLock) {
  turns(streams(12), 10);
  EXPECT_GE(heap_.awake(), 12U);
  const PoolId pool = graph_pool_handle();
  heap_.add_pool(pool, {}, {});
  for (int i = 0; i < 1000; ++i) {
    void* const block = heap_.allocate_in(pool, kKibi, {});
    EXPECT_TRUE(heap_.free(reinterpret_cast<std::uintptr_t>(block), nullptr));
  }
  EXPECT_LT(heap_.awake(), WakeCounts::kFew);
}

TEST_F(AwakeHeapTest, FewStay) {
  turns(streams(3), 10);
  miss(streams(1).front(), 1000);
  EXPECT_GE(heap_.awake(), 3U);
}

TEST_F(AwakeHeapTest, WhoIsIdleIsNotWhereAnotherFindsNoRoom) {
  turns(streams(AwakeStreams::kMost), 100);
  EXPECT_EQ(heap_.awake(), AwakeStreams::kMost);
  ASSERT_LT(heap_.busy(), static_cast<std::ptrdiff_t>(AwakeStreams::kMost)) << "other times are needed: all are busy";
  turns(streams(1), 5);
  EXPECT_LT(heap_.awake(), AwakeStreams::kMost);
}

}  // namespace
}  // namespace cistern
