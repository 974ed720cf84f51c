// Expandable segments: how they grow and shrink, what a snapshot shows of them, and what they wait
// for. That every figure is PyTorch's is for the golden set-ups and the model to say.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "allocator/device_heaps.h"
#include "tests/allocator/capturing_driver.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

constexpr const char* kExpandable = "oom_dump:off,expandable_segments:True";

std::int64_t mebibytes(std::int64_t count) { return count << 20; }

class Expandable : public ::testing::Test {
 protected:
  explicit Expandable(std::size_t capacity = 1024 * kMega, const char* options = kExpandable)
      : driver({.capacity_bytes = capacity, .backing = Backing::none}),
        allocator({.driver = &driver.api(), .options = AllocatorOptions::parse(options)}) {}

  void* take(std::size_t bytes, StreamHandle stream = nullptr) { return allocator.allocate(bytes, stream); }
  std::int64_t reserved() const { return allocator.memory_stats().reserved_bytes.all.current; }
  std::vector<SegmentInfo> segments() const { return allocator.snapshot().segments; }

  SimulatedDriver driver;
  CachingAllocator allocator;
};

TEST_F(Expandable, ASegmentGrowsInPlaceByWholePages) {
  auto* first = static_cast<char*>(take(3 * kMega));
  EXPECT_EQ(reserved(), mebibytes(20));
  auto* second = static_cast<char*>(take(25 * kMega));
  EXPECT_EQ(second, first + 3 * kMega) << "the page's free end and the page after it";
  EXPECT_EQ(reserved(), mebibytes(40));
  take(1000);
  EXPECT_EQ(reserved(), mebibytes(42)) << "small requests have pages of 2 MiB";

  const MemoryStats stats = allocator.memory_stats();
  EXPECT_EQ(stats.segment.all.allocated, 0);
  EXPECT_EQ(stats.inactive_split.all.allocated, 0);
  EXPECT_EQ(stats.num_device_alloc, 3) << "one a map, however many pages";
  EXPECT_EQ(driver.calls("cuMemAlloc"), 0U);
  allocator.check();
}

TEST_F(Expandable, LargeBlocksAreSplitToTheLastHalfKibibyte) {
  auto* first = static_cast<char*>(take(19 * kMega));
  EXPECT_EQ(take(kMega + 512), first + 19 * kMega) << "classic would have kept the 20 MiB whole";
}

TEST_F(Expandable, ASnapshotShowsASegmentForEachMappedRange) {
  take(30 * kMega);
  void* middle = take(30 * kMega);
  take(30 * kMega);
  ASSERT_EQ(segments().size(), 1U);
  EXPECT_TRUE(segments()[0].is_expandable);
  EXPECT_EQ(segments()[0].total_size, mebibytes(100));

  allocator.deallocate(middle);
  allocator.empty_cache();
  const std::vector<SegmentInfo> parted = segments();
  ASSERT_EQ(parted.size(), 2U);
  EXPECT_EQ(parted[0].total_size, mebibytes(40)) << "the page that another block is in stays";
  EXPECT_EQ(parted[1].address, parted[0].address + 60 * kMega);
  for (const SegmentInfo& segment : parted) {
    std::int64_t tiled = 0;
    for (const BlockInfo& block : segment.blocks) {
      EXPECT_EQ(block.address, segment.address + static_cast<std::uint64_t>(tiled));
      tiled += block.size;
    }
    EXPECT_EQ(tiled, segment.total_size);
  }
  EXPECT_EQ(driver.used_bytes(), static_cast<std::size_t>(reserved()));

  EXPECT_EQ(take(25 * kMega), middle) << "the gap, with the free end before it";
  EXPECT_EQ(segments().size(), 1U) << "what touches is one again";
  allocator.check();
}

TEST_F(Expandable, TrimTakesTheHighestPagesAndNoMore) {
  allocator.deallocate(take(100 * kMega));
  EXPECT_EQ(allocator.trim(50 * kMega), 60 * kMega);
  ASSERT_EQ(segments().size(), 1U);
  EXPECT_EQ(reserved(), mebibytes(40));
  EXPECT_EQ(allocator.trim(0), 40 * kMega);
  EXPECT_EQ(driver.calls("cuMemAddressFree"), 1U) << "a range without memory goes, too";
}

// What is behind a gap becomes a segment of its own, whose blocks are found as before.
TEST_F(Expandable, BlocksOnBothSidesOfAGapAreFreed) {
  std::vector<void*> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(take(20 * kMega));
  for (const int freed : {1, 3}) allocator.deallocate(blocks[static_cast<std::size_t>(freed)]);
  allocator.check();
  allocator.empty_cache();
  EXPECT_EQ(reserved(), mebibytes(60));
  EXPECT_EQ(segments().size(), 3U);
  allocator.check();
  for (const int live : {4, 0, 2}) allocator.deallocate(blocks[static_cast<std::size_t>(live)]);
  EXPECT_EQ(allocator.memory_stats().allocation.all.current, 0);
  EXPECT_EQ(take(60 * kMega), blocks[0]) << "the gaps are mapped again";
  allocator.check();
}

TEST(ExpandableDevice, ARangeGrowsByGigabytes) {
  SimulatedDriver driver({.capacity_bytes = 8192 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse(kExpandable)});
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(allocator.allocate(700 * kMega));
  allocator.check();
  EXPECT_EQ(allocator.snapshot().segments.size(), 1U);
  for (void* const block : blocks) allocator.deallocate(block);
  EXPECT_EQ(allocator.memory_stats().allocation.all.current, 0);
  allocator.check();
}

// A request goes on where another one of its stream came to meanwhile, further on than was to be foreseen.
TEST(ExpandableDevice, ARangeGrowsWhileARequestAsksForFreeMemory) {
  SimulatedDriver driver({.capacity_bytes = 8192 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse(kExpandable)});
  static_cast<void>(allocator.allocate(20 * kMega));
  void* other = nullptr;
  allocator.add_free_memory_callback([&](int, std::size_t) {
    other = allocator.allocate(1100 * kMega);
    return false;
  });
  void* const block = allocator.allocate(1100 * kMega);
  EXPECT_EQ(block, static_cast<char*>(other) + 1100 * kMega);
  allocator.check();
  for (void* const each : {block, other}) allocator.deallocate(each);
  EXPECT_EQ(allocator.memory_stats().allocation.all.current, 1);
}

class SmallDevice : public Expandable {
 protected:
  SmallDevice() : Expandable(100 * kMega) {}
};

// The pages before the one that was refused stay, as PyTorch's do, and are counted.
TEST_F(SmallDevice, PagesMappedBeforeAFailingMapStayCounted) {
  take(20 * kMega);
  void* second = take(20 * kMega);
  void* third = take(20 * kMega);
  void* fourth = take(20 * kMega);
  take(20 * kMega);
  allocator.deallocate(second);
  allocator.deallocate(fourth);
  allocator.empty_cache();
  allocator.deallocate(third);
  take(20 * kMega, driver.create_stream());
  ASSERT_EQ(reserved(), mebibytes(80));

  EXPECT_THROW(take(60 * kMega), OutOfMemoryError);
  const MemoryStats stats = allocator.memory_stats();
  EXPECT_EQ(stats.reserved_bytes.all.allocated, mebibytes(140)) << "one page of the three that were missing";
  EXPECT_EQ(stats.reserved_bytes.all.peak, mebibytes(100));
  EXPECT_EQ(stats.reserved_bytes.all.current, mebibytes(60)) << "the flush that followed gave it back";
  EXPECT_EQ(stats.num_alloc_retries, 1);
  EXPECT_EQ(stats.num_ooms, 1);
  EXPECT_EQ(driver.used_bytes(), 60 * kMega);
  allocator.check();
}

TEST_F(SmallDevice, TheLimitIsAskedForTheWholeSegmentASmallRequestWouldHave) {
  allocator.set_memory_fraction(0.03);
  take(1000);
  EXPECT_THROW(take(3 * kMega), OutOfMemoryError) << "20 MiB more than 3";
  EXPECT_EQ(driver.calls("cuMemCreate"), 1U);
}

TEST_F(SmallDevice, WithoutAddressesTheCauseSaysSo) {
  CUdeviceptr address = 0;
  std::size_t bytes = 128 * 100 * kMega;
  while (bytes >= 100 * kMega) {
    if (driver.api().mem_address_reserve(&address, bytes, 0, 0, 0) != CUDA_SUCCESS) bytes -= 2 * kMega;
  }
  try {
    take(1000);
    FAIL() << "there are no addresses";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.report().cause, OutOfMemoryCause::address_space);
    EXPECT_NE(std::string(error.what()).find("addresses"), std::string::npos) << error.what();
  }
  EXPECT_EQ(reserved(), 0);
  allocator.check();
}

TEST_F(SmallDevice, ARequestThatFailsLeavesNoRangeWithoutMemory) {
  EXPECT_THROW(take(110 * kMega), OutOfMemoryError);
  EXPECT_EQ(driver.calls("cuMemAddressReserve"), 2U) << "before the flush and after it";
  EXPECT_EQ(driver.calls("cuMemAddressFree"), 2U);
}

TEST_F(SmallDevice, ARequestLargerThanAnyRangeReservesNothing) {
  EXPECT_THROW(take(200 * kMega), OutOfMemoryError);
  EXPECT_EQ(driver.calls("cuMemAddressReserve"), 0U);
}

// --- What is waited for -------------------------------------------------------------------

// The detector knows no order between an unmap and the work before it: only the wait makes it safe.
void flush_under_queued_work(int current_device) {
  SimulatedDriver driver(
      {.devices = 2, .capacity_bytes = 256 * kMega, .backing = Backing::none, .races = RaceMode::collect});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse(kExpandable)});
  const StreamHandle stream = driver.create_stream(0);
  CUcontext context = nullptr;
  ASSERT_EQ(driver.api().primary_ctx_retain(&context, current_device), CUDA_SUCCESS);
  ASSERT_EQ(driver.api().ctx_set_current(context), CUDA_SUCCESS);
  void* block = allocator.allocate(30 * kMega, stream, 0);
  driver.launch(
      stream, {}, {{block, 30 * kMega}}, 1ms, [] {}, "writer");
  allocator.deallocate(block);

  allocator.empty_cache();

  EXPECT_EQ(driver.used_bytes(0), 0U);
  EXPECT_EQ(driver.calls("cuStreamSynchronize"), 1U) << "the stream of the pages, and no more";
  EXPECT_EQ(driver.calls("cuCtxSynchronize"), 0U);
  for (const RaceReport& report : driver.race_reports()) ADD_FAILURE() << report.to_string();
  CUcontext current = nullptr;
  EXPECT_EQ(driver.api().ctx_get_current(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, context);
  EXPECT_EQ(driver.api().ctx_set_current(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(driver.api().primary_ctx_release(current_device), CUDA_SUCCESS);
}

TEST(ExpandableWaits, AnUnmapWaitsForTheStreamOfThePages) { flush_under_queued_work(0); }
TEST(ExpandableWaits, AnUnmapWaitsOnTheOwningDeviceWhicheverIsCurrent) { flush_under_queued_work(1); }

TEST(ExpandableWaits, AFlushWithNothingToUnmapWaitsForNothing) {
  SimulatedDriver driver({.capacity_bytes = 256 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse(kExpandable)});
  const StreamHandle stream = driver.create_stream();
  static_cast<void>(allocator.allocate(20 * kMega, stream));
  driver.occupy(stream, 1ms);
  allocator.empty_cache();
  EXPECT_EQ(driver.api().stream_query(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(driver.host_synchronizations(), 0U);
}

// A stream that somebody captures, of which the allocator was not told, cannot be waited for.
TEST(ExpandableWaits, PagesOfACapturedStreamStayUntilTheCaptureEnds) {
  CapturingDriver captures({.capacity_bytes = 256 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &captures.api, .options = AllocatorOptions::parse(kExpandable)});
  const StreamHandle captured = captures.driver.create_stream();
  allocator.deallocate(allocator.allocate(20 * kMega, captured));
  allocator.deallocate(allocator.allocate(20 * kMega, nullptr));
  captures.begin_capture(captured, 1);
  allocator.empty_cache();
  EXPECT_EQ(captures.driver.used_bytes(), 20 * kMega) << "the other stream's went";
  EXPECT_FALSE(captures.invalidated());
  allocator.check();
  captures.end_capture(captured);
  allocator.empty_cache();
  EXPECT_EQ(captures.driver.used_bytes(), 0U);
}

// --- Streams that are over, private pools ----------------------------------------------------

TEST_F(Expandable, TheRangeOfADestroyedStreamServesAnother) {
  const StreamHandle first = driver.create_stream();
  const StreamHandle second = driver.create_stream();
  void* block = take(30 * kMega, first);
  allocator.deallocate(block);
  driver.occupy(first, 1ms);
  allocator.release_stream(first);
  driver.destroy_stream(first);
  EXPECT_EQ(take(30 * kMega, second), block);
  EXPECT_EQ(allocator.memory_stats().num_device_alloc, 1);
  take(40 * kMega, second);
  EXPECT_EQ(segments().size(), 1U) << "it goes on growing there";
  EXPECT_EQ(driver.calls("cuMemAddressReserve"), 1U);
  allocator.check();
}

TEST_F(Expandable, PagesOfADestroyedStreamGoBackBehindItsLastWork) {
  const StreamHandle stream = driver.create_stream();
  void* kept = take(25 * kMega, stream);
  allocator.deallocate(take(60 * kMega, stream));
  driver.occupy(stream, 1ms);
  allocator.release_stream(stream);
  driver.destroy_stream(stream);
  allocator.empty_cache();
  EXPECT_EQ(reserved(), mebibytes(40));
  EXPECT_EQ(driver.calls("cuStreamSynchronize"), 0U) << "the stream is gone";
  allocator.deallocate(kept);
  allocator.empty_cache();
  EXPECT_EQ(driver.used_bytes(), 0U);
  allocator.check();
}

bool private_pool_expands(const char* options) {
  SimulatedDriver driver({.capacity_bytes = 256 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse(options)});
  const MemPool pool(allocator);
  void* block = pool.allocate(30 * kMega);
  const bool expands = allocator.snapshot().segments.at(0).is_expandable;
  allocator.check();
  allocator.deallocate(block);
  return expands;
}

TEST(ExpandablePools, PrivatePoolsExpandBut24sDoNot) {
  EXPECT_TRUE(private_pool_expands("expandable_segments:True"));
  EXPECT_FALSE(private_pool_expands("expandable_segments:True,pytorch_rules:2.4"));
  EXPECT_FALSE(private_pool_expands(""));
}

TEST_F(Expandable, ARestoredCheckpointFindsItsPlaceInASegmentThatHasGrown) {
  const MemPool pool(allocator);
  void* first = pool.allocate(3 * kMega);
  void* second = pool.allocate(9 * kMega);
  const PoolCheckpoint before = allocator.checkpoint_pool(0, pool.id());
  void* branch = pool.allocate(50 * kMega);
  allocator.deallocate(second);
  const PoolRestored restored = allocator.restore_pool(0, before);
  EXPECT_EQ(restored.live, (std::vector<void*>{first, second}));
  EXPECT_EQ(restored.freed, (std::vector<void*>{first, branch}));
  EXPECT_EQ(pool.allocate(50 * kMega), branch) << "free, and still there";
  allocator.check();
}

// --- Turning it on and off --------------------------------------------------------------------

TEST_F(Expandable, TurnedOffItsFreeBlocksServeNobodyAndItsLiveOnesAreFreed) {
  void* expandable = take(30 * kMega);
  allocator.deallocate(take(12 * kMega));
  allocator.set_options("expandable_segments:False");
  void* classic = take(12 * kMega);
  EXPECT_EQ(driver.calls("cuMemAlloc"), 1U);
  allocator.deallocate(classic);
  allocator.deallocate(expandable);
  allocator.set_options("expandable_segments:True");
  EXPECT_EQ(take(12 * kMega), classic) << "turned on again, a block of either kind serves: the smallest";
  allocator.check();
  allocator.empty_cache();
  EXPECT_EQ(reserved(), mebibytes(12));
}

// What goes back before a flush is the smallest free segment that is large enough, where pages would be smaller, too.
TEST(ExpandableDevice, AnOversizeSegmentGoesBackAlthoughFreePagesWouldFit) {
  SimulatedDriver driver({.capacity_bytes = 100 * kMega, .backing = Backing::none});
  CachingAllocator allocator(
      {.driver = &driver.api(), .options = AllocatorOptions::parse("expandable_segments:True,max_split_size_mb:32")});
  allocator.deallocate(allocator.allocate(40 * kMega));
  allocator.set_options("expandable_segments:False,max_split_size_mb:32");
  allocator.deallocate(allocator.allocate(42 * kMega));
  static_cast<void>(allocator.allocate(2 * kMega));
  const MemoryStats stats = allocator.memory_stats();
  EXPECT_EQ(stats.num_alloc_retries, 0);
  EXPECT_EQ(stats.reserved_bytes.all.current, static_cast<std::int64_t>((40 + 20) * kMega));
}

TEST_F(Expandable, OnAUsedHeapOnlyItAndClassicChangePlaces) {
  take(1000);
  EXPECT_THROW(allocator.set_options("policy:direct"), NotSupported);
  EXPECT_EQ(allocator.options().policy, Policy::expandable);
  allocator.set_options("policy:classic");
  EXPECT_EQ(allocator.options().policy, Policy::classic);
}

TEST(ExpandableDevice, WithoutVirtualMemoryManagementItIsFalseAndSaysSoOnce) {
  SimulatedDriver driver({.devices = 2, .capacity_bytes = 256 * kMega, .backing = Backing::none});
  DriverApi api = driver.api();
  api.mem_map = {};
  Contexts contexts(api);
  ::testing::internal::CaptureStderr();
  DeviceHeaps heaps(contexts, AllocatorOptions::parse(kExpandable));
  static_cast<void>(heaps.allocate(30 * kMega, {}, 0));
  static_cast<void>(heaps.allocate(30 * kMega, {}, 1));
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(warning,
            "cistern: expandable_segments:True: the device or its driver has no virtual memory management; device 0 is "
            "served as by False\n");
  EXPECT_FALSE(heaps.snapshot().segments.at(0).is_expandable);
  EXPECT_FALSE(heaps.snapshot().settings.expandable_segments);
  EXPECT_EQ(heaps.snapshot().settings.policy, "classic");
  EXPECT_EQ(heaps.stats(0).segment.all.current, 1);
  EXPECT_NE(heaps.describe_options().find("without effect: expandable_segments on device 1"), std::string::npos);
}

}  // namespace
}  // namespace cistern
