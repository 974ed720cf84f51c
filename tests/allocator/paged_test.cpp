// Paged memory: what repeats without a driver call, what streams wait for, what a snapshot shows, and what goes back.
// That no two blocks share a byte is for the heap's check, the model's programs and the race detector to say.

#include <cistern/allocator.h>
#include <cistern/error.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "allocator/device_heaps.h"
#include "tests/allocator/capturing_driver.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

constexpr const char* kPaged = "oom_dump:off,policy:paged";

std::int64_t mebibytes(std::int64_t count) { return count << 20; }

class Paged : public ::testing::Test {
 protected:
  explicit Paged(std::size_t capacity = 1024 * kMega, const char* options = kPaged)
      : driver({.capacity_bytes = capacity, .backing = Backing::none, .races = RaceMode::collect}),
        allocator({.driver = &driver.api(), .options = AllocatorOptions::parse(options)}) {}

  void* take(std::size_t bytes, StreamHandle stream = nullptr) { return allocator.allocate(bytes, stream); }
  void give(void* block) { allocator.deallocate(block); }
  [[nodiscard]] std::int64_t reserved() const { return allocator.memory_stats().reserved_bytes.all.current; }
  // The heap is sound, a snapshot shows every reserved byte once, and no work raced.
  void judge() {
    allocator.check();
    std::int64_t shown = 0;
    const Snapshot snapshot = allocator.snapshot();
    for (const SegmentInfo& segment : snapshot.segments) {
      shown += segment.total_size;
      std::int64_t tiled = 0;
      for (const BlockInfo& block : segment.blocks) {
        EXPECT_EQ(block.address, segment.address + static_cast<std::uint64_t>(tiled));
        tiled += block.size;
      }
      EXPECT_EQ(tiled, segment.total_size);
    }
    EXPECT_EQ(shown, reserved());
    EXPECT_EQ(driver.used_bytes(), static_cast<std::size_t>(reserved()));
    for (const RaceReport& report : driver.race_reports()) ADD_FAILURE() << report.to_string();
  }
  // Work of the stream on the block.
  void work(void* block, std::size_t bytes, StreamHandle stream) {
    driver.launch(stream, {}, {{block, bytes}}, 1ms, [] {});
  }

  SimulatedDriver driver;
  CachingAllocator allocator;
};

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

class PagedSmallDevice : public Paged {
 protected:
  PagedSmallDevice() : Paged(32 * kMega) {}
};

TEST_F(PagedSmallDevice, AFullDeviceServesWithWhatIsFree) {
  const StreamHandle side = driver.create_stream();
  std::vector<void*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(take(2 * kMega, i % 2 == 0 ? nullptr : side));
  for (std::size_t i = 0; i < 16; i += 4) give(blocks[i]);
  for (std::size_t i = 1; i < 16; i += 4) give(blocks[i]);
  work(blocks[3], 2 * kMega, side);
  void* gathered = take(16 * kMega);
  EXPECT_EQ(allocator.memory_stats().num_alloc_retries, 0);
  EXPECT_EQ(driver.host_synchronizations(), 0U);
  work(gathered, 16 * kMega, nullptr);
  driver.run_until_idle();
  judge();
}

// Four pages of five, between the free end of one that is in use and the free beginning of another.
TEST_F(PagedSmallDevice, WhatTheDriverHasLeftServesBesideFragments) {
  std::vector<void*> small;
  for (int i = 0; i < 4; ++i) small.push_back(take(kMega));
  take(20 * kMega);
  give(small[1]);
  give(small[2]);
  EXPECT_NE(take(10 * kMega), nullptr);
  EXPECT_EQ(reserved(), mebibytes(32));
  EXPECT_EQ(allocator.memory_stats().num_alloc_retries, 0);
  judge();
}

class PagedSmallDeviceOf64Pages : public Paged {
 protected:
  PagedSmallDeviceOf64Pages() : Paged(128 * kMega) {}
};

// Below the peak of before all twenty pages are asked of the driver, which has nineteen left now: too many for a window
// that fragments would be spent on before.
TEST_F(PagedSmallDeviceOf64Pages, WhatTheDriverHasLeftServesThoughItRefusedMore) {
  give(take(120 * kMega));
  allocator.empty_cache();
  std::vector<void*> small;
  for (int i = 0; i < 4; ++i) small.push_back(take(kMega));
  take(10 * kMega);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle outside = 0;
  ASSERT_EQ(driver.api().mem_create(&outside, 76 * kMega, &properties, 0), CUDA_SUCCESS);
  give(small[1]);
  give(small[2]);
  EXPECT_NE(take(40 * kMega), nullptr);
  EXPECT_EQ(reserved(), mebibytes(52));
  EXPECT_EQ(allocator.memory_stats().num_alloc_retries, 0);
  allocator.check();
  ASSERT_EQ(driver.api().mem_release(outside), CUDA_SUCCESS);
  judge();
}

TEST_F(PagedSmallDevice, WhatCannotBeServedIsReported) {
  take(30 * kMega);
  try {
    take(4 * kMega);
    FAIL() << "the device has no room for this";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.report().cause, OutOfMemoryCause::device_full);
    EXPECT_EQ(error.report().allocated_bytes, 30 * kMega);
  }
  judge();
}

TEST_F(PagedSmallDevice, PendingFreesAreAwaitedBeforeTheRequestFails) {
  const StreamHandle side = driver.create_stream();
  void* block = take(24 * kMega);
  driver.occupy(side, 1ms);
  allocator.record_stream(block, side);
  give(block);
  EXPECT_NE(take(20 * kMega), nullptr);
  EXPECT_EQ(allocator.memory_stats().num_alloc_retries, 1);
  judge();
}

class PagedLimit : public Paged {
 protected:
  PagedLimit() : Paged(64 * kMega, "oom_dump:off,policy:paged,per_process_memory_fraction:0.5") {}
};

TEST_F(PagedLimit, TheFractionIsKept) {
  void* block = take(20 * kMega);
  EXPECT_THROW(take(20 * kMega), OutOfMemoryError);
  EXPECT_LE(reserved(), mebibytes(32));
  give(block);
  EXPECT_NE(take(30 * kMega), nullptr);
  EXPECT_LE(reserved(), mebibytes(32));
  judge();
}

// 64 MiB may be held, and above 32 MiB free handles are garbage.
class PagedCollected : public Paged {
 protected:
  PagedCollected()
      : Paged(128 * kMega,
              "oom_dump:off,policy:paged,per_process_memory_fraction:0.5,garbage_collection_threshold:0.5") {}
};

TEST_F(PagedCollected, FreeHandlesAboveTheThresholdGoBackBeforeMemoryIsCreated) {
  void* kept = take(8 * kMega);
  void* freed = take(32 * kMega);
  const StreamHandle side = driver.create_stream();
  give(freed);
  EXPECT_EQ(reserved(), mebibytes(40));
  EXPECT_EQ(allocator.memory_stats().num_device_free, 0) << "nothing is created: nothing is collected";
  void* other = take(48 * kMega, side);
  EXPECT_GE(allocator.memory_stats().num_device_free, 1);
  EXPECT_LE(reserved(), mebibytes(64));
  EXPECT_EQ(allocator.memory_stats().num_alloc_retries, 0) << "no flush was needed";
  judge();
  give(other);
  give(kept);
}

TEST_F(PagedCollected, BelowTheThresholdNothingGoesBack) {
  give(take(16 * kMega));
  give(take(30 * kMega));
  EXPECT_EQ(allocator.memory_stats().num_device_free, 0);
  judge();
}

TEST_F(PagedLimit, AFractionThatIsLoweredHoldsForWhatComes) {
  void* block = take(20 * kMega);
  allocator.set_memory_fraction(0.25);
  EXPECT_THROW(take(4 * kMega), OutOfMemoryError);
  give(block);
  EXPECT_NE(take(16 * kMega), nullptr);
  EXPECT_LE(reserved(), mebibytes(20));
  allocator.set_memory_fraction(1.0);
  EXPECT_NE(take(40 * kMega), nullptr);
  judge();
}

// A stream that is captured cannot wait for what lies outside, nor can another for it.
TEST(PagedCapture, ACapturedStreamTakesItsOwnBytesAlone) {
  CapturingDriver captures({.capacity_bytes = 64 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &captures.api, .options = AllocatorOptions::parse(kPaged)});
  const StreamHandle side = captures.driver.create_stream();
  const StreamHandle captured = captures.driver.create_stream();
  allocator.deallocate(allocator.allocate(16 * kMega, side));
  captures.begin_capture(captured, 1);
  void* block = allocator.allocate(16 * kMega, captured);
  EXPECT_EQ(allocator.memory_stats().reserved_bytes.all.current, mebibytes(32));
  captures.end_capture(captured);
  EXPECT_FALSE(captures.invalidated());
  allocator.check();
  allocator.deallocate(block);
}

// Nobody told of its end: what it had queued is not known to be over, and the host does not wait for it.
TEST_F(Paged, AStreamThatIsGoneKeepsItsMemory) {
  const StreamHandle gone = driver.create_stream();
  const StreamHandle side = driver.create_stream();
  void* block = take(16 * kMega, gone);
  work(block, 16 * kMega, gone);
  give(block);
  driver.destroy_stream(gone);
  void* next = take(16 * kMega, side);
  work(next, 16 * kMega, side);
  EXPECT_EQ(reserved(), mebibytes(32));
  EXPECT_EQ(driver.host_synchronizations(), 0U);
  driver.run_until_idle();
  judge();
  give(next);
  allocator.empty_cache();
  EXPECT_EQ(driver.used_bytes(), 0U);
}

// A stream that is over leaves its memory to others, behind its last work.
TEST_F(Paged, AStreamThatIsOverLeavesItsMemory) {
  const StreamHandle ended = driver.create_stream();
  const StreamHandle side = driver.create_stream();
  void* block = take(16 * kMega, ended);
  work(block, 16 * kMega, ended);
  give(block);
  allocator.release_stream(ended);
  driver.destroy_stream(ended);
  void* next = take(16 * kMega, side);
  work(next, 16 * kMega, side);
  EXPECT_EQ(reserved(), mebibytes(16));
  driver.run_until_idle();
  judge();
  give(next);
  allocator.empty_cache();
  EXPECT_EQ(driver.used_bytes(), 0U);
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
  DeviceHeaps heaps(contexts, AllocatorOptions::parse(kPaged));
  static_cast<void>(heaps.allocate(30 * kMega, {}, 0));
  static_cast<void>(heaps.allocate(30 * kMega, {}, 1));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "nobody need have asked for it";
  EXPECT_EQ(heaps.snapshot().settings.policy, "classic");
  EXPECT_EQ(heaps.stats(0).segment.all.current, 1);
  EXPECT_NE(heaps.describe_options().find("without effect: policy:paged on device 1"), std::string::npos);
}

// Random programs on several streams, whose work the race detector follows.
TEST_F(PagedSmallDevice, RandomProgramsAreSound) {
  std::vector<StreamHandle> streams = {nullptr, driver.create_stream(), driver.create_stream()};
  std::mt19937_64 random(20261122);
  std::map<void*, std::size_t> live;
  std::int64_t sum = 0;
  const auto rounded = [](std::size_t bytes) { return static_cast<std::int64_t>((bytes + 511) / 512 * 512); };
  for (int i = 0; i < 3000; ++i) {
    const StreamHandle stream = streams[random() % streams.size()];
    const auto any_live = [&] { return std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size())); };
    const std::uint64_t choice = random() % 100;
    if (choice < 50) {
      const std::size_t bytes = 1 + random() % (choice < 20 ? 9 * kMega : kMega / 2);
      try {
        void* block = take(bytes, stream);
        EXPECT_TRUE(live.emplace(block, bytes).second);
        sum += rounded(bytes);
        work(block, bytes, stream);
      } catch (const OutOfMemoryError&) {
        driver.run_until_idle();
      }
    } else if (choice < 85 && !live.empty()) {
      const auto block = any_live();
      sum -= rounded(block->second);
      give(block->first);
      live.erase(block);
    } else if (choice < 92) {
      driver.step();
    } else if (choice < 96) {
      driver.run_until_idle(stream);
    } else if (choice < 97) {
      allocator.empty_cache();
    } else if (choice < 98) {
      allocator.trim(random() % (32 * kMega));
    }
    EXPECT_EQ(allocator.memory_stats().allocated_bytes.all.current, sum);
    if (i % 20 == 0) judge();
    if (HasFailure()) FAIL() << "operation " << i;
  }
  while (!live.empty()) {
    give(live.begin()->first);
    live.erase(live.begin());
  }
  driver.run_until_idle();
  allocator.empty_cache();
  EXPECT_EQ(driver.used_bytes(), 0U);
  judge();
}

// A stretch in the middle of another stream's page, which no mapping brings: also of a step that comes again, whoever
// frees the block.
TEST_F(PagedSmallDevice, AStreamsBlockInAnothersPagesIsFound) {
  const StreamHandle side = driver.create_stream();
  std::vector<void*> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(take(kMega / 2));
  give(blocks[5]);
  give(blocks[6]);
  for (int turn = 0; turn < 6; ++turn) {
    void* block = take(kMega, side);
    EXPECT_EQ(block, blocks[5]);
    allocator.check();
    if (turn % 2 == 0)
      give(block);
    else
      std::thread([&] { give(block); }).join();
    EXPECT_EQ(allocator.memory_stats().allocation.all.current, 62);
    // Known to its stream without a look between.
    block = take(kMega, side);
    std::thread([&] { give(block); }).join();
    allocator.check();
  }
  judge();
}

// Steps that repeat on several streams, which have each other's bytes in turn: what is known is taken behind the work
// of those who had it, and nobody waits but the streams.
TEST_F(Paged, StepsThatRepeatOnSeveralStreamsAreSound) {
  struct Operation {
    std::size_t block;
    std::size_t bytes;  // 0: a free
    StreamHandle stream;
  };
  const std::vector<StreamHandle> streams = {nullptr, driver.create_stream(), driver.create_stream()};
  std::mt19937_64 random(20261123);
  std::vector<Operation> step;
  std::vector<std::size_t> open;
  std::size_t live = 0;
  std::vector<std::size_t> sizes;
  while (sizes.size() < 300) {
    const std::size_t bytes = 1 + random() % (random() % 4 == 0 ? 8 * kMega : kMega / 4);
    while (live + bytes > 40 * kMega || (!open.empty() && random() % 5 < 2)) {
      const std::size_t at = random() % open.size();
      step.push_back({open[at], 0, nullptr});
      live -= sizes[open[at]];
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
    }
    step.push_back({sizes.size(), bytes, streams[random() % streams.size()]});
    open.push_back(sizes.size());
    sizes.push_back(bytes);
    live += bytes;
  }
  for (const std::size_t block : open) step.push_back({block, 0, nullptr});
  std::uint64_t waits = 0;
  std::uint64_t maps = 0;
  for (int pass = 0; pass < 8; ++pass) {
    const std::uint64_t waits_before = driver.calls("cuStreamWaitEvent");
    const std::uint64_t maps_before = driver.calls("cuMemMap");
    std::vector<void*> blocks(sizes.size());
    for (const auto& [block, bytes, stream] : step) {
      if (bytes == 0) {
        give(blocks[block]);
        continue;
      }
      blocks[block] = take(bytes, stream);
      work(blocks[block], bytes, stream);
      if (pass % 2 == 0) driver.step();
    }
    EXPECT_EQ(driver.host_synchronizations(), 0U);
    if (pass % 3 == 2) judge();
    waits = driver.calls("cuStreamWaitEvent") - waits_before;
    maps = driver.calls("cuMemMap") - maps_before;
  }
  EXPECT_GT(waits, 0U);
  EXPECT_EQ(maps, 0U);
  driver.run_until_idle();
  judge();
}

}  // namespace
}  // namespace cistern
