// Frees that wait for other streams, on a stream that serves itself: as exact as those of PendingFreesTest, with
// fewer calls of the driver.
#include <cistern/allocator.h>
#include <cistern/history.h>
#include <cistern/simulated.h>
#include <cistern/snapshot.h>
#include <cistern/stats.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/allocator/stream_waits_fixture.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

TEST_P(StreamWaitsTest, AThreadWithoutAContextMakesThreeCallsATurn) {
  std::thread([&] {
    turn(allocator_, kKibi);
    const auto calls = calls_of([&] {
      for (int i = 0; i < 10; ++i) turn(allocator_, kKibi);
    });
    const std::map<std::string, std::uint64_t> expected = {
        {"cuStreamIsCapturing", 10}, {"cuEventRecord", 10}, {"cuEventQuery", 10}};
    EXPECT_EQ(calls, expected);
  }).join();
}

TEST_P(StreamWaitsTest, TheBlockComesBackAndEveryTurnIsCounted) {
  void* const first = turn(allocator_, kKibi);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(turn(allocator_, kKibi), first);
  const MemoryStats now = stats();
  EXPECT_EQ(now.allocation.all.allocated, 10);
  EXPECT_EQ(now.allocation.all.current, 0);
  EXPECT_EQ(now.allocation.all.peak, 1);
  EXPECT_EQ(now.active.all.current, 1) << "nobody has asked for the last event yet";
  EXPECT_EQ(now.allocated_bytes.all.allocated, 10 * static_cast<std::int64_t>(kKibi));
  EXPECT_EQ(now.requested_bytes.all.peak, static_cast<std::int64_t>(kKibi));
  allocator_.check();
}

TEST_P(StreamWaitsTest, AnotherSizeIsCutAsIfTheBlockHadBeenMerged) {
  void* const first = turn(allocator_, kKibi);
  void* const larger = allocator_.allocate(8 * kKibi, owner_);
  EXPECT_EQ(larger, first);
  allocator_.check();
  EXPECT_EQ(stats().active.all.current, 1);
}

TEST_P(StreamWaitsTest, WhoLooksFindsThePendingFree) {
  driver_.occupy(reader_handle_, 10ms);
  void* const block = turn(allocator_, kKibi);
  EXPECT_EQ(stats().allocation.all.current, 0);
  EXPECT_EQ(stats().active_bytes.all.current, static_cast<std::int64_t>(kKibi));
  const auto pending = allocator_.oldest_pending_free();
  ASSERT_TRUE(pending.has_value());
  EXPECT_EQ(pending->address, reinterpret_cast<std::uintptr_t>(block));
  const Snapshot snapshot = allocator_.snapshot();
  const bool is_shown =
      std::any_of(snapshot.segments.begin(), snapshot.segments.end(), [&](const SegmentInfo& segment) {
        return std::any_of(segment.blocks.begin(), segment.blocks.end(), [&](const BlockInfo& info) {
          return info.address == pending->address && info.state == BlockState::active_pending_free;
        });
      });
  EXPECT_TRUE(is_shown);
  allocator_.check();
  allocator_.empty_cache();
  EXPECT_EQ(stats().active.all.current, 0);
  EXPECT_EQ(stats().reserved_bytes.all.current, 0);
}

TEST_P(StreamWaitsTest, ALateEventKeepsTheBlockAndNothingElse) {
  driver_.occupy(reader_handle_, 10ms);
  void* const late = turn(allocator_, kKibi);
  void* const next = allocator_.allocate(kKibi, owner_);
  EXPECT_NE(next, late);
  allocator_.deallocate(next);
  EXPECT_EQ(allocator_.allocate(kKibi, owner_), next);
  driver_.run_until_idle(reader_handle_);
  EXPECT_EQ(allocator_.allocate(kKibi, owner_), late);
  EXPECT_EQ(stats().active.all.current, 2);
  allocator_.check();
}

TEST_P(StreamWaitsTest, ASlowStreamHidesNoFinishedFreeOfAnother) {
  void* const slow = allocator_.allocate(kKibi, owner_);
  void* const done = allocator_.allocate(kKibi, owner_);
  driver_.occupy(reader_handle_, 10ms);
  free_behind(allocator_, slow, reader_);
  free_behind(allocator_, done, other_);
  EXPECT_EQ(allocator_.allocate(kKibi, owner_), done);
  driver_.run_until_idle(reader_handle_);
  EXPECT_EQ(allocator_.allocate(kKibi, owner_), slow);
  allocator_.check();
}

TEST_P(StreamWaitsTest, AStreamIsAskedUpToItsFirstEventThatIsNotDone) {
  driver_.occupy(reader_handle_, 10ms);
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(allocator_.allocate(kKibi, owner_));
  allocator_.deallocate(blocks.back());
  blocks.pop_back();
  for (void* block : blocks) free_behind(allocator_, block, reader_);
  const auto calls = calls_of([&] { blocks.push_back(allocator_.allocate(kKibi, owner_)); });
  EXPECT_EQ(calls, (std::map<std::string, std::uint64_t>{{"cuEventQuery", 1}}));
}

TEST_P(StreamWaitsTest, MoreThanAStreamHasRoomForWaitAndComeBack) {
  driver_.occupy(reader_handle_, 10ms);
  std::vector<void*> blocks;
  for (int i = 0; i < 50; ++i) blocks.push_back(allocator_.allocate(kMega, owner_));
  for (void* block : blocks) free_behind(allocator_, block, reader_);
  EXPECT_EQ(stats().active.all.current, 50);
  EXPECT_EQ(stats().allocation.all.current, 0);
  driver_.run_until_idle(reader_handle_);
  void* const block = allocator_.allocate(kMega, owner_);
  EXPECT_NE(std::find(blocks.begin(), blocks.end(), block), blocks.end());
  EXPECT_EQ(stats().active.all.current, 1);
  allocator_.check();
}

// As PyTorch has it: every request asks for all events.
TEST_P(StreamWaitsTest, ARequestOnAnotherStreamCompletesWhatIsDone) {
  for (int i = 0; i < 3; ++i) allocator_.deallocate(allocator_.allocate(kKibi, other_));
  turn(allocator_, kKibi);
  void* const block = allocator_.allocate(kKibi, other_);
  EXPECT_EQ(stats().active.all.current, 1);
  allocator_.deallocate(block);
  allocator_.check();
}

TEST_P(StreamWaitsTest, ARequestCompletesWhatAnotherStreamFreedMeanwhile) {
  const StreamHandle third = driver_.create_stream();
  for (int i = 0; i < 4; ++i) {
    void* const block = allocator_.allocate(kKibi, other_);
    free_behind(allocator_, block, wrapped(third));
  }
  static_cast<void>(allocator_.allocate(kKibi, owner_));
  void* const of_other = allocator_.allocate(kKibi, other_);
  allocator_.record_stream(of_other, wrapped(third));
  driver_.occupy(reader_handle_, 10ms);
  turn(allocator_, kKibi);
  allocator_.deallocate(of_other);
  static_cast<void>(allocator_.allocate(kKibi, owner_));
  EXPECT_EQ(stats().active.all.current, 3) << "two that live, and the one that the reader keeps";
  allocator_.check();
}

TEST_P(StreamWaitsTest, ALateFreeOfAnotherStreamIsAskedForByEveryRequestAndHoldsNoneUp) {
  for (int i = 0; i < 3; ++i) {
    void* const below_the_peaks = allocator_.allocate(kKibi, other_);
    turn(allocator_, kKibi);
    allocator_.deallocate(below_the_peaks);
  }
  driver_.occupy(reader_handle_, 10ms);
  turn(allocator_, kKibi);
  const auto calls = calls_of([&] {
    for (int i = 0; i < 4; ++i) allocator_.deallocate(allocator_.allocate(kKibi, other_));
  });
  EXPECT_EQ(calls, (std::map<std::string, std::uint64_t>{{"cuEventQuery", 4}}));
  EXPECT_EQ(stats().active.all.current, 1);
  driver_.run_until_idle(reader_handle_);
  static_cast<void>(allocator_.allocate(kKibi, other_));
  EXPECT_EQ(stats().active.all.current, 1) << "the new one";
  allocator_.check();
}

TEST_P(StreamWaitsTest, MoreStreamsThanAWordHasBitsFreeBehindOneReader) {
  std::vector<Stream> streams;
  std::vector<void*> blocks(10000);
  for (void*& block : blocks) block = allocator_.allocate(kKibi, owner_);
  for (void* block : std::exchange(blocks, {})) allocator_.deallocate(block);
  for (int i = 0; i < 70; ++i) {
    streams.push_back(wrapped(driver_.create_stream()));
    // With this and the blocks before there is room for all below the peaks.
    static_cast<void>(allocator_.allocate(kKibi, streams.back()));
    for (int times = 0; times < 3; ++times) turn(allocator_, kKibi, streams.back());
    for (const Stream& awake : streams) allocator_.deallocate(allocator_.allocate(kKibi, awake));
  }
  for (const Stream& stream : streams) blocks.push_back(allocator_.allocate(kKibi, stream));
  driver_.occupy(reader_handle_, 10ms);
  for (void* block : blocks) free_behind(allocator_, block, reader_);
  driver_.run_until_idle(reader_handle_);
  static_cast<void>(allocator_.allocate(kKibi, streams.back()));
  EXPECT_EQ(stats().active.all.current, 71);
  allocator_.check();
}

// Frees of two streams' blocks, which the same reader uses, in turns.
class StreamWaitsInTurnsTest : public StreamWaitsTest {
 protected:
  StreamWaitsInTurnsTest() {
    for (int times = 0; times < 4; ++times) {
      for (void* block : std::exchange(blocks_, {})) free_behind(allocator_, block, reader_);
      allocator_.deallocate(allocator_.allocate(kKibi, third_));
      for (const Stream* owner : {&owner_, &other_, &owner_, &other_, &other_, &owner_})
        blocks_.push_back(allocator_.allocate(kMega, *owner));
    }
    HistoryOptions history = HistoryOptions::always_on();
    history.clear_history = true;
    allocator_.record_history(history);
    driver_.occupy(reader_handle_, 10ms);
    for (void* block : blocks_) free_behind(allocator_, block, reader_);
  }
  [[nodiscard]] std::vector<void*> completed() const {
    std::vector<void*> addresses;
    const Snapshot snapshot = allocator_.snapshot();
    for (const TraceEntry& entry : snapshot.device_traces.at(0))
      if (entry.action == TraceAction::free_completed) addresses.push_back(reinterpret_cast<void*>(entry.address));
    return addresses;
  }
  const Stream third_ = wrapped(driver_.create_stream());
  std::vector<void*> blocks_;
};

TEST_P(StreamWaitsInTurnsTest, OneRequestCompletesThemInTheirOrder) {
  driver_.run_until_idle(reader_handle_);
  static_cast<void>(allocator_.allocate(kKibi, third_));
  EXPECT_EQ(completed(), blocks_);
  EXPECT_EQ(stats().active.all.current, 1);
  allocator_.check();
}

TEST_P(StreamWaitsInTurnsTest, WhoLooksFindsAllOfThemAndLeavesTheirOrder) {
  EXPECT_EQ(stats().active.all.current, static_cast<std::int64_t>(blocks_.size()));
  EXPECT_EQ(stats().allocation.all.current, 0);
  driver_.run_until_idle(reader_handle_);
  static_cast<void>(allocator_.allocate(kKibi, third_));
  EXPECT_EQ(completed(), blocks_);
  allocator_.check();
}

TEST_P(StreamWaitsTest, ABlockThatTwoStreamsUsedWaitsForBoth) {
  void* const block = allocator_.allocate(kKibi, owner_);
  driver_.occupy(other_handle_, 10ms);
  allocator_.record_stream(block, other_);
  free_behind(allocator_, block, reader_);
  EXPECT_NE(allocator_.allocate(kKibi, owner_), block);
  driver_.run_until_idle(other_handle_);
  EXPECT_EQ(allocator_.allocate(kKibi, owner_), block);
}

TEST_P(StreamWaitsTest, ASecondFreeFreesNothing) {
  driver_.occupy(reader_handle_, 10ms);
  void* const block = turn(allocator_, kKibi);
  ::testing::internal::CaptureStderr();
  allocator_.deallocate(block);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("nothing was freed"), std::string::npos);
  EXPECT_EQ(stats().active.all.current, 1);
  allocator_.check();
}

TEST_P(StreamWaitsTest, AFreeWhileTheRecordedStreamCapturesIsGuardedAfterTheCapture) {
  void* const block = allocator_.allocate(kKibi, owner_);
  allocator_.record_stream(block, reader_);
  ASSERT_EQ(driver_.api().stream_begin_capture(reader_handle_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  allocator_.deallocate(block);
  EXPECT_NE(allocator_.allocate(kKibi, owner_), block);
  CUgraph graph = nullptr;
  ASSERT_EQ(driver_.api().stream_end_capture(reader_handle_, &graph), CUDA_SUCCESS);
  EXPECT_EQ(driver_.api().graph_destroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(allocator_.allocate(kKibi, owner_), block);
  allocator_.check();
}

TEST_P(StreamWaitsTest, TheEntriesAreThoseOfAFreeThatWaits) {
  HistoryOptions history = HistoryOptions::always_on();
  history.clear_history = true;
  allocator_.record_history(history);
  for (int i = 0; i < 4; ++i) turn(allocator_, kKibi);
  static_cast<void>(allocator_.allocate(kKibi, owner_));
  std::vector<TraceAction> actions;
  const Snapshot snapshot = allocator_.snapshot();
  for (const TraceEntry& entry : snapshot.device_traces.at(0)) actions.push_back(entry.action);
  const std::vector<TraceAction> of_turn = {TraceAction::alloc, TraceAction::free_requested,
                                            TraceAction::free_completed};
  std::vector<TraceAction> expected = {TraceAction::free_completed};  // of the last turn before
  for (int i = 0; i < 4; ++i) expected.insert(expected.end(), of_turn.begin(), of_turn.end());
  expected.push_back(TraceAction::alloc);
  EXPECT_EQ(actions, expected);
}

// Each takes the way of streams that serve themselves whenever the other lets it.
TEST_P(StreamWaitsTest, TwoStreamsAndOneWhoLooksAgree) {
  constexpr int kTurns = 2000;
  std::atomic<int> working{2};
  const auto work = [&](const Stream& owner, const Stream& user) {
    for (int i = 0; i < kTurns; ++i) {
      void* const block = allocator_.allocate(kKibi * static_cast<std::size_t>(1 + i % 3), owner);
      if (i % 4 != 3) allocator_.record_stream(block, user);
      allocator_.deallocate(block);
    }
    --working;
  };
  std::thread one(work, std::cref(owner_), std::cref(reader_));
  std::thread two(work, std::cref(other_), std::cref(reader_));
  while (working != 0) {
    const MemoryStats now = stats();
    EXPECT_LE(now.allocation.all.current, 2);
    EXPECT_GE(now.active.all.current, now.allocation.all.current);
    std::this_thread::yield();
  }
  one.join();
  two.join();
  allocator_.empty_cache();
  EXPECT_EQ(stats().allocation.all.allocated, 2 * kTurns);
  EXPECT_EQ(stats().active.all.current, 0);
  EXPECT_EQ(stats().reserved_bytes.all.current, 0);
  allocator_.check();
}

INSTANTIATE_TEST_SUITE_P(Each, StreamWaitsTest, kEachPolicy, name_of_policy);
INSTANTIATE_TEST_SUITE_P(Each, StreamWaitsInTurnsTest, kEachPolicy, name_of_policy);

}  // namespace
}  // namespace cistern
