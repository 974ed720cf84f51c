// Paged memory: what repeats without a driver call, what streams wait for, what a snapshot shows, and what goes back.
// That no two blocks share a byte is for the heap's check, the model's programs and the race detector to say.

#include <cistern/allocator.h>
#include <cistern/error.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "allocator/device_heaps.h"
#include "tests/allocator/paged_fixture.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

TEST_F(Paged, ReservedStaysAtWhatIsLiveAndAStepThatRepeatsMakesNoCall) {
  std::mt19937_64 random(20261122);
  std::vector<std::size_t> sizes;
  for (int i = 0; i < 40; ++i) sizes.push_back(1 + random() % (i % 4 == 0 ? 12 * kMega : kMega));
  const auto step = [&] {
    std::vector<void*> blocks;
    for (const std::size_t size : sizes) blocks.push_back(take(size));
    for (std::size_t i = 0; i < blocks.size(); i += 2) give(blocks[i]);
    for (std::size_t i = 0; i < sizes.size() / 2; ++i) give(take(sizes[i]));
    for (std::size_t i = 1; i < blocks.size(); i += 2) give(blocks[i]);
  };
  step();
  judge();
  const MemoryStats stats = allocator.memory_stats();
  EXPECT_LE(stats.reserved_bytes.all.peak, stats.active_bytes.all.peak + mebibytes(4));
  step();
  const std::uint64_t calls = driver.calls();
  step();
  EXPECT_EQ(driver.calls(), calls);
  EXPECT_EQ(driver.calls("cuMemAlloc"), 0U);
  judge();
}

TEST_F(Paged, ItCountsNeitherAsSegmentsNorAsSplit) {
  void* block = take(3 * kMega);
  take(1000);
  give(block);
  const MemoryStats stats = allocator.memory_stats();
  EXPECT_EQ(stats.segment.all.allocated, 0);
  EXPECT_EQ(stats.inactive_split.all.allocated, 0);
  EXPECT_EQ(stats.allocation.large_pool.current, 1) << "there is one kind of blocks";
  EXPECT_EQ(stats.reserved_bytes.large_pool.current, mebibytes(4));
  judge();
}

// Whole handles that lie apart serve a block that needs as many.
TEST_F(Paged, FreeHandlesAreGathered) {
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(take(2 * kMega));
  for (std::size_t i = 0; i < 8; i += 2) give(blocks[i]);
  void* gathered = take(8 * kMega);
  EXPECT_EQ(reserved(), mebibytes(16));
  EXPECT_EQ(driver.calls("cuMemCreate"), 8U);
  judge();
  give(gathered);
  judge();
}

// The host waits for nothing: the stream does, and the detector sees it.
TEST_F(Paged, AnotherStreamsBytesAreTakenBehindItsWork) {
  const StreamHandle side = driver.create_stream();
  const StreamHandle other = driver.create_stream();
  void* theirs = take(16 * kMega, side);
  work(theirs, 16 * kMega, side);
  give(theirs);
  void* mine = take(16 * kMega, other);
  EXPECT_EQ(reserved(), mebibytes(16));
  work(mine, 16 * kMega, other);
  EXPECT_EQ(driver.host_synchronizations(), 0U);
  driver.run_until_idle();
  EXPECT_EQ(driver.calls("cuStreamWaitEvent"), 1U);
  judge();
  give(mine);
  void* again = take(16 * kMega, other);
  EXPECT_EQ(driver.calls("cuStreamWaitEvent"), 1U) << "it is the stream's own now";
  give(again);
}

TEST_F(Paged, OnRequestBytesAreHadOfStreamsThatAreDoneAlone) {
  allocator.set_options("stream_hand_over:done");
  const StreamHandle side = driver.create_stream();
  const StreamHandle other = driver.create_stream();
  void* theirs = take(16 * kMega, side);
  work(theirs, 16 * kMega, side);
  give(theirs);
  void* mine = take(16 * kMega, other);
  EXPECT_EQ(reserved(), mebibytes(32)) << "the side stream is at work";
  driver.run_until_idle();
  void* more = take(16 * kMega, other);
  EXPECT_EQ(reserved(), mebibytes(32)) << "now it is done";
  work(more, 16 * kMega, other);
  EXPECT_EQ(driver.calls("cuStreamWaitEvent"), 0U);
  EXPECT_EQ(driver.host_synchronizations(), 0U);
  judge();
  give(mine);
  give(more);
}

TEST_F(Paged, OnRequestNoBytesAreHadOfOtherStreams) {
  allocator.set_options("stream_hand_over:never");
  void* theirs = take(16 * kMega, driver.create_stream());
  give(theirs);
  void* mine = take(16 * kMega, driver.create_stream());
  EXPECT_EQ(reserved(), mebibytes(32));
  judge();
  give(mine);
}

TEST_F(Paged, ABlockThatOthersUseIsFreeWhenTheyAreDone) {
  const StreamHandle side = driver.create_stream();
  void* block = take(4 * kMega);
  work(block, 4 * kMega, side);
  allocator.record_stream(block, side);
  give(block);
  judge();
  EXPECT_EQ(allocator.memory_stats().active_bytes.all.current, mebibytes(4));
  allocator.set_options("stream_hand_over:done");
  void* next = take(4 * kMega);
  EXPECT_EQ(reserved(), mebibytes(8)) << "the first is awaited";
  work(next, 4 * kMega, nullptr);
  driver.run_until_idle();
  void* third = take(4 * kMega);
  EXPECT_EQ(third, block);
  judge();
}

TEST_F(Paged, EmptyCacheGivesBackWholeHandlesAndAllAddresses) {
  const StreamHandle side = driver.create_stream();
  void* small = take(1000);
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(take(5 * kMega, i % 2 == 0 ? nullptr : side));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    work(blocks[i], 5 * kMega, i % 2 == 0 ? nullptr : side);
    give(blocks[i]);
  }
  driver.run_until_idle();
  allocator.empty_cache();
  EXPECT_EQ(reserved(), mebibytes(2));
  judge();
  give(small);
  allocator.empty_cache();
  EXPECT_EQ(reserved(), 0);
  EXPECT_EQ(driver.calls("cuMemAddressReserve"), driver.calls("cuMemAddressFree"));
  EXPECT_EQ(driver.calls("cuMemCreate"), driver.calls("cuMemRelease"));
  judge();
  give(take(3 * kMega, side));
  judge();
}

TEST_F(Paged, AFlushWaitsForTheWorkOnWhatGoesBack) {
  const StreamHandle side = driver.create_stream();
  void* block = take(8 * kMega, side);
  work(block, 8 * kMega, side);
  give(block);
  allocator.empty_cache();
  EXPECT_EQ(reserved(), 0);
  EXPECT_EQ(driver.host_synchronizations(), 1U);
  driver.run_until_idle();
  judge();
}

TEST_F(Paged, TrimGivesBackNoMoreThanIsAsked) {
  give(take(100 * kMega));
  EXPECT_EQ(allocator.trim(50 * kMega), 50 * kMega);
  EXPECT_EQ(reserved(), mebibytes(50));
  judge();
  EXPECT_EQ(allocator.trim(0), 50 * kMega);
  EXPECT_EQ(driver.used_bytes(), 0U);
}

TEST_F(Paged, PrivatePoolsHaveSegmentsOfTheirOwn) {
  const MemPool pool(allocator);
  void* block = pool.allocate(3 * kMega, nullptr);
  EXPECT_EQ(driver.calls("cuMemAlloc"), 1U);
  void* beside = take(3 * kMega);
  EXPECT_EQ(driver.calls("cuMemAlloc"), 1U);
  judge();
  give(block);
  give(beside);
}

TEST_F(Paged, ABudgetRefusesAndAHistoryTells) {
  allocator.record_history({.enabled = HistoryEnabled::all, .context = HistoryContext::all});
  {
    const Budget budget(allocator, {.hard_bytes = 8 * kMega});
    void* block = take(6 * kMega);
    EXPECT_THROW(take(6 * kMega), OutOfMemoryError);
    judge();
    give(block);
  }
  const Snapshot snapshot = allocator.snapshot();
  const auto count = [&](TraceAction action) {
    return std::count_if(snapshot.device_traces[0].begin(), snapshot.device_traces[0].end(),
                         [action](const TraceEntry& entry) { return entry.action == action; });
  };
  EXPECT_EQ(count(TraceAction::alloc), 1);
  EXPECT_EQ(count(TraceAction::segment_map), 1);
  EXPECT_EQ(count(TraceAction::free_completed), 1);
}

TEST_F(Paged, OnAUsedHeapItStays) {
  take(1000);
  EXPECT_THROW(allocator.set_options("policy:classic"), NotSupported);
  EXPECT_EQ(allocator.options().policy, Policy::paged);
}

TEST(PagedDevice, WithoutVirtualMemoryManagementItIsClassicAndSnapshotsSaySo) {
  SimulatedDriver driver({.devices = 2, .capacity_bytes = 256 * kMega, .backing = Backing::none});
  DriverApi api = driver.api();
  api.mem_map = {};
  Contexts contexts(api);
  ::testing::internal::CaptureStderr();
  DeviceHeaps heaps(contexts, AllocatorOptions::parse("oom_dump:off,policy:paged"));
  static_cast<void>(heaps.allocate(30 * kMega, {}, 0));
  static_cast<void>(heaps.allocate(30 * kMega, {}, 1));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "nobody need have asked for it";
  EXPECT_EQ(heaps.snapshot().settings.policy, "classic");
  EXPECT_EQ(heaps.stats(0).segment.all.current, 1);
  EXPECT_NE(heaps.describe_options().find("without effect: policy:paged on device 1"), std::string::npos);
}

}  // namespace
}  // namespace cistern
