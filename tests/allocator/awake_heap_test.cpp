// How many streams of a heap are awake: those that take turns, and no more than pay.
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/device_allocator.h"
#include "allocator/out_of_memory_dump.h"
#include "allocator/wake_counts.h"
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

struct NoSnapshots final : SnapshotSource {
  Written write_snapshot(int, int*) noexcept override { return Written::not_all; }
};

class AwakeHeapTest : public ::testing::Test {
 protected:
  // Each has a block, for one that has none left is nobody's.
  [[nodiscard]] std::vector<StreamIdentity> streams(std::size_t count) {
    std::vector<StreamIdentity> all(count);
    for (StreamIdentity& each : all) {
      each.handle = driver_.create_stream();
      unsigned long long id = 0;
      EXPECT_EQ(driver_.api().stream_get_id(each.handle, &id), CUDA_SUCCESS);
      each.id = id;
      static_cast<void>(heap_.allocate(512, each));
    }
    return all;
  }
  void turn(const StreamIdentity& stream, std::size_t bytes) {
    void* const block = heap_.allocate(bytes, stream);
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    StreamHeap* const of_stream = heap_.find_by_page(address);
    EXPECT_TRUE(of_stream != nullptr ? heap_.free_beside_pairs(*of_stream, address) : heap_.free(address, nullptr));
  }
  void turns(const std::vector<StreamIdentity>& streams, int times) {
    for (int i = 0; i < times; ++i)
      for (const StreamIdentity& stream : streams)
        for (const std::size_t bytes : {kKibi, 2 * kKibi, 3 * kKibi}) turn(stream, bytes);
  }
  void miss(const StreamIdentity& stream, int times) {
    for (int i = 0; i < times; ++i) {
      turn(stream, 40 * kMega);
      heap_.empty_cache();
    }
  }

  SimulatedDriver driver_{{.capacity_bytes = 4096 * kMega, .backing = Backing::none}};
  Contexts contexts_{driver_.api()};
  AllocatorOptions options_ = AllocatorOptions::parse("oom_dump:off,policy:classic");
  EventPools event_pools_{driver_.api(), 1};
  Observers observers_;
  NoSnapshots no_snapshots_;
  ShownHeap heap_{{contexts_, event_pools_, observers_, no_snapshots_}, 0, options_, {}};
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
      turn(other, kKibi);
      for (const StreamIdentity& stream : busy) turn(stream, kKibi);
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
    turn(brief.stream, kKibi);
    heap_.end_stream(brief);
    for (const StreamIdentity& stream : stay) turn(stream, kKibi);
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
