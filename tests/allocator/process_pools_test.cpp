// Private pools of the process's own heap: the primitives, MemPool and its guard, graphs whose
// memory they are, and streams that are destroyed. The race detector looks on and must stay silent.

#include <cistern/cistern.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

class ProcessPools : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE", "simulated:devices=2,capacity=1GiB,races=collect", 1);
    setenv("CISTERN_ALLOC_CONF", "policy:classic", 1);
  }
  void TearDown() override {
    simulated::driver().run_until_idle();
    for (const RaceReport& report : simulated::driver().race_reports()) ADD_FAILURE() << report.to_string();
  }

  static bool holds(const std::vector<SegmentInfo>& segments, void* pointer) {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    return std::any_of(segments.begin(), segments.end(), [address](const SegmentInfo& segment) {
      return address >= segment.address && address < segment.address + static_cast<std::uint64_t>(segment.total_size);
    });
  }
  static void write(
      const Stream& stream, void* pointer, std::size_t bytes, std::function<void()> function = [] {}) {
    simulated::launch(stream, {}, {{pointer, bytes}}, 1ms, std::move(function));
  }
  static void read(const Stream& stream, void* pointer, std::size_t bytes) {
    simulated::launch(stream, {{pointer, bytes}}, {}, 1ms, [] {});
  }
};

TEST_F(ProcessPools, ThePrimitivesActOnTheProcessesHeap) {
  const PoolId id = graph_pool_handle();
  EXPECT_EQ(pool_use_count(0, id), 0U);
  EXPECT_THROW(end_allocate_to_pool(0, id), InvalidArgument);
  begin_allocate_to_pool(0, id, PoolFilter::this_thread());
  EXPECT_THROW(begin_allocate_to_pool(0, id, PoolFilter::this_thread()), InvalidArgument);
  void* inside = allocate(kMega);
  end_allocate_to_pool(0, id);
  void* outside = allocate(kMega);
  EXPECT_TRUE(holds(memory_snapshot(0, id), inside));
  EXPECT_FALSE(holds(memory_snapshot(0, id), outside));
  EXPECT_TRUE(holds(memory_snapshot(0, PoolId{}), outside));
  EXPECT_EQ(pool_use_count(0, id), 1U);
  EXPECT_EQ(pool_use_count(1, id), 0U) << "a pool is of one device";
  deallocate(inside);
  deallocate(outside);
  empty_cache();
  EXPECT_EQ(memory_reserved(), 2 * kMega) << "a pool in use keeps its memory";
  release_pool(0, id);
  empty_cache();
  EXPECT_EQ(memory_reserved(), 0U);
  EXPECT_THROW(release_pool(0, id), InvalidArgument);
}

TEST_F(ProcessPools, AGuardRoutesItsThreadOnThePoolsDevice) {
  const MemPool pool({.device = 1, .name = "weights"});
  EXPECT_EQ(pool.device(), Device(1));
  {
    const MemPoolGuard guard(pool);
    void* here = allocate(kMega, default_stream(1));
    void* on_the_first = allocate(kMega, default_stream(0));
    EXPECT_TRUE(holds(pool.snapshot(), here));
    EXPECT_FALSE(holds(pool.snapshot(), on_the_first));
    std::thread([&] {
      void* elsewhere = allocate(kMega, default_stream(1));
      EXPECT_FALSE(holds(pool.snapshot(), elsewhere));
      deallocate(elsewhere);
    }).join();
    deallocate(here);
    deallocate(on_the_first);
  }
  void* after = allocate(kMega, default_stream(1));
  EXPECT_FALSE(holds(pool.snapshot(), after));
  deallocate(after);
}

TEST_F(ProcessPools, ACheckpointIsRestored) {
  const MemPool pool;
  void* kept = pool.allocate(kMega, Stream{});
  const PoolCheckpoint before = checkpoint_pool(0, pool.id());
  void* branch = pool.allocate(30 * kMega, Stream{});
  const PoolRestored restored = restore_pool(0, before);
  EXPECT_EQ(restored.live, std::vector<void*>{kept});
  EXPECT_EQ(memory_allocated(), kMega);
  EXPECT_EQ(pool.allocate(30 * kMega, Stream{}), branch);
  EXPECT_THROW(static_cast<void>(restore_pool(1, before)), InvalidArgument);
}

// The graph writes the same memory at each launch, long after its block was freed.
TEST_F(ProcessPools, NobodyElseGetsAGraphsMemoryWhileItLives) {
  const Stream stream = Stream::create();
  const PoolId id = capture_pool_id();
  int runs = 0;
  void* inside = nullptr;
  begin_allocate_to_pool(0, id, PoolFilter::stream(stream));
  stream.begin_capture();
  inside = allocate(4 * kMega, stream);
  write(stream, inside, 4 * kMega, [&] { ++runs; });
  deallocate(inside);
  Graph graph = stream.end_capture();
  end_allocate_to_pool(0, id);
  EXPECT_EQ(runs, 0) << "a capture runs nothing";

  std::vector<void*> others;
  for (int launch = 1; launch <= 3; ++launch) {
    graph.launch(stream);
    void* block = allocate(4 * kMega, stream);
    EXPECT_FALSE(holds(memory_snapshot(0, id), block));
    write(stream, block, 4 * kMega);
    others.push_back(block);
    empty_cache();
    simulated::driver().run_until_idle();
    EXPECT_EQ(runs, launch);
  }
  graph = Graph{};
  release_pool(0, id);
  for (void* block : others) deallocate(block);
  empty_cache();
  EXPECT_EQ(memory_reserved(), 0U) << "with the graph its memory goes";
}

TEST_F(ProcessPools, AFreeDuringACaptureIsPutOffUntilItsStreamsHaveJoined) {
  const Stream stream = Stream::create();
  const Stream side = Stream::create();
  const PoolId id = capture_pool_id();
  begin_allocate_to_pool(0, id, PoolFilter::stream(stream));
  stream.begin_capture();
  void* block = allocate(4 * kMega, stream);
  write(stream, block, 4 * kMega);
  side.wait_stream(stream);
  read(side, block, 4 * kMega);
  record_stream(block, side);
  deallocate(block);
  void* next = allocate(4 * kMega, stream);
  EXPECT_NE(next, block) << "the side stream may still read it in the graph";
  write(stream, next, 4 * kMega);
  stream.wait_stream(side);
  const Graph graph = stream.end_capture();
  end_allocate_to_pool(0, id);
  graph.launch(stream);
  deallocate(next);
  graph.launch(stream);
  EXPECT_EQ(memory_stats().active.all.current, 1) << "the put-off free is not looked at yet";
  void* after = allocate(1000, stream);
  EXPECT_EQ(memory_stats().active.all.current, 1) << "now it is: what is live is the new block";
  deallocate(after);
  simulated::driver().run_until_idle();
  release_pool(0, id);
}

// The last copy of a stream tells the heap: its memory serves the next stream, behind its work.
TEST_F(ProcessPools, AStreamsMemoryFollowsItsEnd) {
  const Stream heir = Stream::create();
  void* block = nullptr;
  std::vector<int> order;
  {
    const Stream temporary = Stream::create();
    block = allocate(30 * kMega, temporary);
    write(temporary, block, 30 * kMega, [&] { order.push_back(1); });
    deallocate(block);
  }
  EXPECT_EQ(allocate(30 * kMega, heir), block);
  EXPECT_EQ(memory_stats().num_device_alloc, 1);
  write(heir, block, 30 * kMega, [&] { order.push_back(2); });
  EXPECT_EQ(simulated::driver().host_synchronizations(), 0U);
  simulated::driver().run_until_idle();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  deallocate(block);
}

}  // namespace
}  // namespace cistern
