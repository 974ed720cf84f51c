// A free and the same request again are only counted: nobody can tell.
#include <cistern/allocator.h>
#include <cistern/mem_pool.h>
#include <cistern/scope.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "runtime/driver_api.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

struct Setting {
  Policy policy = Policy::classic;
  bool is_warm = false;  // the lock leans towards the thread: plain pairs are served at once (PairHits)
};

class LazyFreeTest : public ::testing::TestWithParam<Setting> {
 protected:
  [[nodiscard]] static bool is_paged() { return GetParam().policy == Policy::paged; }
  LazyFreeTest() {
    EXPECT_EQ(driver_.api().init(0), CUDA_SUCCESS);
    CUcontext context = nullptr;
    EXPECT_EQ(driver_.api().primary_ctx_retain(&context, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver_.api().ctx_set_current(context), CUDA_SUCCESS);
    wake(nullptr);
    raise_peaks();
  }
  // A free stands only on a stream that serves itself: after some requests, and as long as no peak moves.
  void wake(StreamHandle stream) {
    for (int i = 0; i < (GetParam().is_warm ? 100 : 3); ++i) allocator_.deallocate(allocator_.allocate(512, stream));
  }
  void raise_peaks() {
    std::array<void*, 8> blocks{};
    for (void*& block : blocks) block = allocator_.allocate(128 * kKibi);
    for (std::size_t i = 0; i < blocks.size(); i += 2) allocator_.deallocate(blocks[i]);
    for (std::size_t i = 1; i < blocks.size(); i += 2) allocator_.deallocate(blocks[i]);
    allocator_.deallocate(allocator_.allocate(512));
  }
  StreamHandle new_stream() {
    CUstream stream = nullptr;
    EXPECT_EQ(driver_.api().stream_create_with_priority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    return stream;
  }
  [[nodiscard]] MemoryStats stats() const { return allocator_.memory_stats(); }

  SimulatedDriver driver_{{.capacity_bytes = std::size_t{1} << 30, .backing = Backing::none}};
  CachingAllocator allocator_{{.driver = &driver_.api(),
                               .options = AllocatorOptions::parse(std::string("stream_hand_over:done,policy:") +
                                                                  to_string(GetParam().policy))}};
};

TEST_P(LazyFreeTest, TheBlockComesBackAndEveryTurnIsCounted) {
  allocator_.reset_peak_memory_stats();
  void* const first = allocator_.allocate(3 * kKibi);
  const MemoryStats before = stats();
  void* block = allocator_.allocate(4 * kKibi);
  for (int turn = 0; turn < 5; ++turn) {
    allocator_.deallocate(block);
    void* const again = allocator_.allocate(4 * kKibi);
    EXPECT_EQ(again, block);
    block = again;
  }
  const MemoryStats live = stats();
  EXPECT_EQ(live.allocation.all.current, before.allocation.all.current + 1);
  EXPECT_EQ(live.allocation.all.allocated, before.allocation.all.allocated + 6);
  EXPECT_EQ(live.allocated_bytes.all.allocated, before.allocated_bytes.all.allocated + std::int64_t{6 * 4 * kKibi});
  EXPECT_EQ(live.allocated_bytes.all.peak, live.allocated_bytes.all.current);
  const std::int64_t parted = live.inactive_split_bytes.all.freed - before.inactive_split_bytes.all.freed;
  EXPECT_EQ(parted, GetParam().policy == Policy::classic ? std::int64_t{6 * 4 * kKibi} : 0);
  allocator_.deallocate(block);
  const MemoryStats after = stats();
  EXPECT_EQ(after.allocation.all.current, before.allocation.all.current);
  EXPECT_EQ(after.allocation.all.freed, before.allocation.all.freed + 6);
  EXPECT_EQ(after.inactive_split_bytes.all.current, before.inactive_split_bytes.all.current);
  EXPECT_NO_THROW(allocator_.check());
  allocator_.deallocate(first);
}

TEST_P(LazyFreeTest, WhoLooksFindsTheFreeCarriedOut) {
  void* const block = allocator_.allocate(4 * kKibi);
  allocator_.deallocate(block);
  const Snapshot snapshot = allocator_.snapshot();
  ASSERT_EQ(snapshot.segments.size(), 1U);
  ASSERT_EQ(snapshot.segments[0].blocks.size(), 1U);
  EXPECT_EQ(snapshot.segments[0].blocks[0].state, BlockState::inactive);
  EXPECT_EQ(stats().allocation.all.current, 0);
}

TEST_P(LazyFreeTest, MemoryThatIsFreeGoesBackToTheDriver) {
  void* const block = allocator_.allocate(20 * kKibi * kKibi);
  allocator_.deallocate(block);
  allocator_.empty_cache();
  EXPECT_EQ(stats().reserved_bytes.all.current, 0);
}

TEST_P(LazyFreeTest, AnotherStreamGetsAnotherBlock) {
  const StreamHandle stream = new_stream();
  void* const block = allocator_.allocate(4 * kKibi);
  allocator_.deallocate(block);
  EXPECT_NE(allocator_.allocate(4 * kKibi, stream), block);
}

TEST_P(LazyFreeTest, AnotherSizeIsCutAsIfTheBlockHadBeenMerged) {
  void* const block = allocator_.allocate(4 * kKibi);
  allocator_.deallocate(block);
  void* const larger = allocator_.allocate(64 * kKibi);
  EXPECT_EQ(larger, block);
  EXPECT_EQ(stats().allocated_bytes.all.current, std::int64_t{64 * kKibi});
  EXPECT_EQ(stats().requested_bytes.all.current, std::int64_t{64 * kKibi});
}

TEST_P(LazyFreeTest, WhatWasAskedForIsCountedWhereTheBlockIsTheSame) {
  void* const block = allocator_.allocate(4 * kKibi);
  allocator_.deallocate(block);
  EXPECT_EQ(allocator_.allocate(4 * kKibi - 100), block);
  EXPECT_EQ(stats().requested_bytes.all.current, std::int64_t{4 * kKibi - 100});
}

TEST_P(LazyFreeTest, ASecondFreeFreesNothing) {
  const std::int64_t freed = stats().allocation.all.freed;
  void* const block = allocator_.allocate(4 * kKibi);
  allocator_.deallocate(block);
  ::testing::internal::CaptureStderr();
  allocator_.deallocate(block);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("not the address of a live block"), std::string::npos);
  EXPECT_EQ(stats().allocation.all.freed, freed + 1);
}

TEST_P(LazyFreeTest, ABlockThatAnotherStreamUsedWaitsForIt) {
  const StreamHandle stream = new_stream();
  void* block = allocator_.allocate(4 * kKibi);
  allocator_.deallocate(block);
  block = allocator_.allocate(4 * kKibi);
  driver_.launch(stream, {}, {}, std::chrono::milliseconds(1), {}, {});
  allocator_.record_stream(block, stream);
  allocator_.deallocate(block);
  EXPECT_NE(allocator_.allocate(4 * kKibi), block);
}

TEST_P(LazyFreeTest, ATaggedRequestIsItsTags) {
  void* const block = allocator_.allocate(4 * kKibi);
  allocator_.deallocate(block);
  void* tagged = nullptr;
  {
    const TagScope scope("optimizer");
    tagged = allocator_.allocate(4 * kKibi);
  }
  std::int64_t live = 0;
  for (const TagStats& each : allocator_.tag_stats())
    if (each.tag == "optimizer") live = each.allocated_bytes.current;
  EXPECT_EQ(live, std::int64_t{4 * kKibi});
  allocator_.deallocate(tagged);
}

TEST_P(LazyFreeTest, AFreeThatWaitsIsCompletedByTheNextRequestOfAnySize) {
  const StreamHandle stream = new_stream();
  // By its own lock the stream awaits frees once the heap has room for them.
  for (int i = 0; i < (GetParam().is_warm ? 200 : 0); ++i) {
    void* const used = allocator_.allocate(64 * kKibi);
    allocator_.record_stream(used, stream);
    allocator_.deallocate(used);
    driver_.run_until_idle();
  }
  void* const awaited = allocator_.allocate(64 * kKibi);
  driver_.launch(stream, {}, {}, std::chrono::milliseconds(1), {}, {});
  allocator_.record_stream(awaited, stream);
  allocator_.deallocate(awaited);
  void* const block = allocator_.allocate(4 * kKibi);
  allocator_.deallocate(block);
  driver_.run_until_idle();
  EXPECT_NE(allocator_.allocate(4 * kKibi), nullptr);
  EXPECT_EQ(stats().active.all.current, 1);
}

TEST_P(LazyFreeTest, WhereTagsAreKeptEachTurnIsCountedAmongWhatHasNone) {
  const std::int64_t before = stats().allocation.all.allocated;
  {
    const TagScope scope("optimizer");
    allocator_.deallocate(allocator_.allocate(64 * kKibi));
  }
  for (int turn = 0; turn < 5; ++turn) allocator_.deallocate(allocator_.allocate(4 * kKibi));
  for (const TagStats& each : allocator_.tag_stats())
    EXPECT_EQ(each.allocation.allocated, each.tag.empty() ? before + 5 : 1) << each.tag;
}

TEST_P(LazyFreeTest, WhoNotesBlocksHearsOfEachTurn) {
  DriverApi api = driver_.api();
  int came = 0;
  int went = 0;
  const auto count = [](void* notes, CUdeviceptr, std::size_t, CUstream, const void*) { ++*static_cast<int*>(notes); };
  api.note_allocate = {&came, count};
  api.note_free = {&went, count};
  CachingAllocator allocator(
      {.driver = &api, .options = AllocatorOptions::parse(std::string("policy:") + to_string(GetParam().policy))});
  constexpr int kTurns = 110;
  for (int i = 0; i < kTurns; ++i) allocator.deallocate(allocator.allocate(kKibi));
  EXPECT_EQ(came, kTurns);
  EXPECT_EQ(went, kTurns);
}

TEST_P(LazyFreeTest, ABudgetHearsOfEveryRequest) {
  int calls = 0;
  BudgetOptions options;
  options.device = Device(0);
  options.soft_bytes = kKibi;
  options.on_soft = [&](const BudgetCrossing&) { ++calls; };
  const Budget budget(allocator_, options);
  for (int turn = 0; turn < 3; ++turn) allocator_.deallocate(allocator_.allocate(4 * kKibi));
  EXPECT_EQ(calls, 3);
}

TEST_P(LazyFreeTest, AThreadThatRecordsToAPoolIsServedByItsPool) {
  const PoolId pool = graph_pool_handle();
  allocator_.begin_allocate_to_pool(0, pool, PoolFilter::this_thread());
  void* block = nullptr;
  std::thread([&] {
    block = allocator_.allocate(4 * kKibi);
    allocator_.deallocate(block);
  }).join();
  void* const recorded = allocator_.allocate(4 * kKibi);
  EXPECT_NE(recorded, block);
  allocator_.end_allocate_to_pool(0, pool);
  allocator_.deallocate(recorded);
  allocator_.release_pool(0, pool);
}

// More turns than a stage or a chunk of the ring has places.
class LazyFreeHistory : public LazyFreeTest {
 protected:
  static constexpr int kTurns = 5000;
  void expect_all_turns_of(StreamHandle stream) {
    allocator_.record_history({.context = HistoryContext::none, .clear_history = true});
    wake(stream);
    const int before = count_of(TraceAction::alloc);
    void* block = allocator_.allocate(4 * kKibi, stream);
    for (int turn = 0; turn < kTurns; ++turn) {
      allocator_.deallocate(block);
      block = allocator_.allocate(4 * kKibi, stream);
    }
    EXPECT_EQ(count_of(TraceAction::alloc), before + kTurns + 1);
    EXPECT_EQ(count_of(TraceAction::free_requested), before + kTurns);
    EXPECT_EQ(count_of(TraceAction::free_completed), before + kTurns);
    allocator_.deallocate(block);
  }
  [[nodiscard]] int count_of(TraceAction action) const {
    int count = 0;
    for (const auto& of_device : allocator_.snapshot().device_traces)
      for (const TraceEntry& entry : of_device) count += entry.action == action ? 1 : 0;
    return count;
  }
};

TEST_P(LazyFreeHistory, HasEachTurn) { expect_all_turns_of(nullptr); }

TEST_P(LazyFreeHistory, HasEachTurnWhereSeveralStreamsServe) {
  wake(new_stream());
  expect_all_turns_of(new_stream());
}

// Where the two lie side by side they become one, whose front is cut: the lower one.
TEST_P(LazyFreeTest, WhatAnotherThreadFreedIsFreeBeforeItComesBack) {
  if (is_paged()) GTEST_SKIP() << "places do not become one";
  void* const lower = allocator_.allocate(4 * kKibi);
  void* const last = allocator_.allocate(4 * kKibi);
  ASSERT_LT(lower, last);
  allocator_.deallocate(last);
  std::thread([&] { allocator_.deallocate(lower); }).join();
  EXPECT_EQ(allocator_.allocate(4 * kKibi), lower);
}

TEST_P(LazyFreeTest, EachTurnIsOnTheAccountOfTheTextThatIsSet) {
  allocator_.record_history({.context = HistoryContext::none, .clear_history = true});
  wake(nullptr);
  allocator_.set_user_metadata("step 7");
  wake(nullptr);
  void* block = allocator_.allocate(4 * kKibi);
  for (int turn = 0; turn < 3; ++turn) {
    allocator_.deallocate(block);
    block = allocator_.allocate(4 * kKibi);
  }
  const Snapshot snapshot = allocator_.snapshot();
  int told = 0;
  for (const TraceEntry& entry : snapshot.device_traces.at(0)) {
    if (entry.size != 4 * kKibi || entry.action != TraceAction::alloc) continue;
    ASSERT_GE(entry.user_metadata, 0);
    EXPECT_EQ(snapshot.texts.at(static_cast<std::size_t>(entry.user_metadata)), "step 7");
    ++told;
  }
  EXPECT_EQ(told, 4);
}

TEST_P(LazyFreeTest, WhatIsFreedInBetweenEndsIt) {
  void* const other = allocator_.allocate(8 * kKibi);
  void* const block = allocator_.allocate(4 * kKibi);
  allocator_.deallocate(other);
  allocator_.deallocate(block);
  EXPECT_EQ(stats().allocation.all.current, 0);
  EXPECT_NO_THROW(allocator_.check());
}

const auto kSettings = ::testing::Values(Setting{Policy::classic, false}, Setting{Policy::classic, true},
                                         Setting{Policy::expandable, false}, Setting{Policy::expandable, true},
                                         Setting{Policy::paged, false}, Setting{Policy::paged, true});
std::string name_of(const ::testing::TestParamInfo<Setting>& setting) {
  return std::string(to_string(setting.param.policy)) + (setting.param.is_warm ? "_warm" : "");
}
INSTANTIATE_TEST_SUITE_P(, LazyFreeTest, kSettings, name_of);
INSTANTIATE_TEST_SUITE_P(, LazyFreeHistory, kSettings, name_of);

}  // namespace
}  // namespace cistern
