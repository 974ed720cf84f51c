// Frees that wait for other streams, under a driver that fails, looks or waits where it is asked.
#include <cistern/allocator.h>
#include <cistern/error.h>
#include <cistern/simulated.h>
#include <cistern/stats.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "tests/allocator/stream_waits_fixture.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

// A driver that does something of its own where it is asked.
struct Meddling {
  SimulatedDriver& driver;
  CachingAllocator* allocator = nullptr;
  CUresult record = CUDA_SUCCESS;
  CUresult query = CUDA_SUCCESS;  // of the next one
  bool looks = false;
  std::function<void()> when_asked = nullptr;
  std::function<void()> when_recorded = nullptr;
  bool wants_context = false;
  bool wants_one_to_query = true;  // too
  std::int64_t active = 0;
  std::int64_t allocated = 0;

  [[nodiscard]] bool lacks_context() const {
    CUcontext context = nullptr;
    return wants_context && (driver.api().ctx_get_current(&context) != CUDA_SUCCESS || context == nullptr);
  }
  [[nodiscard]] DriverApi api() {
    DriverApi api = driver.api();
    api.event_record = {this, [](void* self, CUevent event, CUstream stream) {
                          auto& now = *static_cast<Meddling*>(self);
                          if (now.lacks_context()) return CUDA_ERROR_INVALID_CONTEXT;
                          if (now.looks) {
                            now.active = now.allocator->memory_stats().active.all.current;
                            now.allocated = now.allocator->memory_stats().allocation.all.current;
                            now.allocator->check();
                          }
                          if (const auto call = std::exchange(now.when_recorded, nullptr)) call();
                          if (now.record != CUDA_SUCCESS) return now.record;
                          return now.driver.api().event_record(event, stream);
                        }};
    api.event_query = {this, [](void* self, CUevent event) {
                         auto& now = *static_cast<Meddling*>(self);
                         if (now.wants_one_to_query && now.lacks_context()) return CUDA_ERROR_INVALID_CONTEXT;
                         if (const auto call = std::exchange(now.when_asked, nullptr)) call();
                         const CUresult failure = std::exchange(now.query, CUDA_SUCCESS);
                         return failure != CUDA_SUCCESS ? failure : now.driver.api().event_query(event);
                       }};
    return api;
  }
};

class MeddlingStreamWaitsTest : public StreamWaitsTest {
 protected:
  MeddlingStreamWaitsTest() {
    meddling_.allocator = &meddled_;
    for (int i = 0; i < 4; ++i) turn(meddled_, kKibi);
  }
  // Streams of the other driver are the first one's.
  void* turn(CachingAllocator& allocator, std::size_t bytes) {
    void* block = allocator.allocate(bytes, owner_handle_);
    allocator.record_stream(block, reader_handle_);
    allocator.deallocate(block);
    return block;
  }

  // By a thread without a context.
  void expect_records_with_frees() {
    std::thread([&] {
      void* const block = turn(meddled_, kKibi);
      for (int i = 0; i < 8; ++i) {
        EXPECT_EQ(meddled_.allocate(kKibi, owner_handle_), block);
        meddled_.record_stream(block, reader_handle_);
        const std::uint64_t before = driver_.calls("cuEventRecord");
        meddled_.deallocate(block);
        EXPECT_EQ(driver_.calls("cuEventRecord"), before + 1) << "with the free";
      }
      CUcontext current = nullptr;
      EXPECT_EQ(driver_.api().ctx_get_current(&current), CUDA_SUCCESS);
      EXPECT_EQ(current, nullptr);
    }).join();
    meddled_.check();
  }

  Meddling meddling_{.driver = driver_};
  const DriverApi api_ = meddling_.api();
  CachingAllocator meddled_{
      {.driver = &api_, .options = AllocatorOptions::parse(std::string("oom_dump:off,policy:") + GetParam())}};
};

TEST_P(MeddlingStreamWaitsTest, WhoLooksWhileTheEventIsRecordedFindsThePendingFree) {
  meddling_.looks = true;
  driver_.occupy(reader_handle_, 10ms);
  void* const block = turn(meddled_, kKibi);
  meddling_.looks = false;
  EXPECT_EQ(meddling_.active, 1);
  EXPECT_EQ(meddling_.allocated, 0);
  EXPECT_NE(meddled_.allocate(kKibi, owner_handle_), block);
  driver_.run_until_idle(reader_handle_);
  EXPECT_EQ(meddled_.allocate(kKibi, owner_handle_), block);
  EXPECT_EQ(meddled_.memory_stats().active.all.current, 2);
  meddled_.check();
}

TEST_P(MeddlingStreamWaitsTest, WhatComesWhileTheEventIsRecordedFindsTheBlockWaiting) {
  void* between = nullptr;
  for (int i = 0; i < 3; ++i) {
    driver_.occupy(reader_handle_, 10ms);
    meddling_.when_recorded = [&] { between = meddled_.allocate(kKibi, owner_handle_); };
    void* const block = turn(meddled_, kKibi);
    EXPECT_NE(between, block);
    meddled_.deallocate(between);
    EXPECT_EQ(meddled_.memory_stats().active.all.current, 1);
    driver_.run_until_idle(reader_handle_);
    EXPECT_EQ(meddled_.allocate(kKibi, owner_handle_), block);
    meddled_.deallocate(block);
    EXPECT_EQ(meddled_.memory_stats().active.all.current, 0);
    meddled_.check();
    for (int again = 0; again < 4; ++again) turn(meddled_, kKibi);
  }
}

TEST_P(MeddlingStreamWaitsTest, AFreeThatIsAwaitedIsNoneOfALiveBlock) {
  void* const block = turn(meddled_, kKibi);
  meddled_.deallocate(block);  // nothing is freed
  EXPECT_EQ(meddled_.memory_stats().active.all.current, 1);
  EXPECT_EQ(meddled_.allocate(kKibi, owner_handle_), block);
  meddled_.check();
}

TEST_P(MeddlingStreamWaitsTest, ARefusedEventIsTriedAgainAndTold) {
  meddling_.record = CUDA_ERROR_LAUNCH_FAILED;
  void* const block = turn(meddled_, kKibi);
  EXPECT_EQ(meddled_.memory_stats().active.all.current, 1);
  EXPECT_EQ(meddled_.memory_stats().allocation.all.current, 0);
  EXPECT_THROW(static_cast<void>(meddled_.allocate(kKibi, owner_handle_)), DriverError);
  meddling_.record = CUDA_SUCCESS;
  EXPECT_EQ(meddled_.allocate(kKibi, owner_handle_), block);
  meddled_.check();
}

TEST_P(MeddlingStreamWaitsTest, AFailingQueryIsToldToTheRequestThatMadeIt) {
  for (const int warm : {0, 200}) {  // then the stream's lock leans towards the thread
    for (int i = 0; i < warm; ++i) turn(meddled_, kKibi);
    void* const block = turn(meddled_, kKibi);
    meddling_.query = CUDA_ERROR_LAUNCH_FAILED;
    EXPECT_THROW(static_cast<void>(meddled_.allocate(kKibi, owner_handle_)), DriverError);
    EXPECT_EQ(meddled_.memory_stats().active.all.current, 1);
    EXPECT_EQ(meddled_.allocate(kKibi, owner_handle_), block);
    meddled_.deallocate(block);
  }
  meddled_.check();
}

TEST_P(MeddlingStreamWaitsTest, AFailingQueryOfAnotherStreamsFreeIsToldToTheRequestThatMadeIt) {
  for (int i = 0; i < 3; ++i) meddled_.deallocate(meddled_.allocate(kKibi, other_handle_));
  void* const block = turn(meddled_, kKibi);
  meddling_.query = CUDA_ERROR_LAUNCH_FAILED;
  EXPECT_THROW(static_cast<void>(meddled_.allocate(kKibi, other_handle_)), DriverError);
  EXPECT_EQ(meddled_.memory_stats().active.all.current, 1);
  static_cast<void>(meddled_.allocate(kKibi, other_handle_));
  EXPECT_EQ(meddled_.memory_stats().active.all.current, 1) << "the new one";
  EXPECT_EQ(meddled_.allocate(kKibi, owner_handle_), block);
  meddled_.check();
}

// Another thread that has nothing to do with either stream goes on while the event is asked for.
TEST_P(MeddlingStreamWaitsTest, ARequestThatAsksForAnotherStreamsEventHoldsTheLocksOfBothAlone) {
  const StreamHandle third = driver_.create_stream();
  void* block = nullptr;
  for (int i = 0; i < 4; ++i) {
    block = meddled_.allocate(kKibi, third);
    void* const below_the_peaks = meddled_.allocate(kKibi, other_handle_);
    turn(meddled_, kKibi);
    meddled_.deallocate(below_the_peaks);
    if (i != 3) meddled_.deallocate(block);
  }
  std::future<void> recorded;
  bool is_recorded = false;
  meddling_.when_asked = [&] {
    recorded = std::async(std::launch::async, [&] { meddled_.record_stream(block, reader_handle_); });
    is_recorded = recorded.wait_for(10s) == std::future_status::ready;
  };
  static_cast<void>(meddled_.allocate(kKibi, other_handle_));
  recorded.get();
  EXPECT_TRUE(is_recorded);
  meddled_.deallocate(block);
  meddled_.check();
}

// As long as the heap has frees that wait its lock is not what requests need, but to end them.
TEST_P(MeddlingStreamWaitsTest, ARequestAsksForTheHeapsEventsWithTheLockOfItsStreamAlone) {
  const StreamHandle third = driver_.create_stream();
  void* block = nullptr;
  for (int i = 0; i < 4; ++i) {
    block = meddled_.allocate(kKibi, third);
    void* const below_the_peaks = meddled_.allocate(2 * kKibi, owner_handle_);
    turn(meddled_, kKibi);
    meddled_.deallocate(below_the_peaks);
    if (i != 3) meddled_.deallocate(block);
  }
  driver_.occupy(reader_handle_, 10ms);
  void* const late = turn(meddled_, kKibi);
  EXPECT_EQ(meddled_.memory_stats().active.all.current, 2) << "who looks makes it the heap's";
  std::future<void> recorded;
  bool is_recorded = false;
  meddling_.when_asked = [&] {
    recorded = std::async(std::launch::async, [&] { meddled_.record_stream(block, reader_handle_); });
    is_recorded = recorded.wait_for(10s) == std::future_status::ready;
  };
  void* const next = meddled_.allocate(2 * kKibi, owner_handle_);
  recorded.get();
  EXPECT_TRUE(is_recorded);
  EXPECT_NE(next, late);
  meddled_.deallocate(next);
  driver_.run_until_idle(reader_handle_);
  EXPECT_EQ(meddled_.allocate(kKibi, owner_handle_), late) << "its event is asked for by every request";
  meddled_.deallocate(block);
  meddled_.check();
}

// Frees of the same reader come behind those that the heap has: one question is enough for all.
TEST_P(MeddlingStreamWaitsTest, WhatWaitsBehindTheHeapsFreesIsNotAskedFor) {
  std::vector<void*> below_the_peaks;
  for (int i = 0; i < 4; ++i) below_the_peaks.push_back(meddled_.allocate(kKibi, owner_handle_));
  for (void* block : below_the_peaks) meddled_.deallocate(block);
  driver_.occupy(reader_handle_, 10ms);
  turn(meddled_, kKibi);
  EXPECT_EQ(meddled_.memory_stats().active.all.current, 1);
  turn(meddled_, kKibi);
  int asked = 0;
  std::function<void()> ask = [&] {
    ++asked;
    meddling_.when_asked = ask;
  };
  meddling_.when_asked = ask;
  void* const block = meddled_.allocate(kKibi, owner_handle_);
  EXPECT_EQ(asked, 1);
  meddling_.when_asked = nullptr;
  meddled_.deallocate(block);
  driver_.run_until_idle(reader_handle_);
  static_cast<void>(meddled_.allocate(kKibi, owner_handle_));
  EXPECT_EQ(meddled_.memory_stats().active.all.current, 1);
  meddled_.check();
}

// The same while steps are followed: then there is no block yet.
class MeddlingFollowedWaitsTest : public MeddlingStreamWaitsTest {
 protected:
  MeddlingFollowedWaitsTest() {
    for (int i = 0; i < 3000; ++i) pass();
  }
  // What the reader used last comes back, where it did.
  void expect_back(void* block) {
    static_cast<void>(meddled_.allocate(3 * kKibi, owner_handle_));
    EXPECT_EQ(meddled_.allocate(kKibi, owner_handle_), block);
    meddled_.check();
  }
  // Returns the block that the reader used.
  void* pass() {
    void* const kept = meddled_.allocate(3 * kKibi, owner_handle_);
    void* const used = turn(meddled_, kKibi);
    meddled_.deallocate(kept);
    return used;
  }
};

TEST_P(MeddlingFollowedWaitsTest, WhoLooksWhileTheEventIsRecordedFindsThePendingFree) {
  meddling_.looks = true;
  driver_.occupy(reader_handle_, 10ms);
  void* const block = pass();
  meddling_.looks = false;
  EXPECT_EQ(meddling_.active, 2);
  EXPECT_EQ(meddling_.allocated, 1);
  EXPECT_EQ(meddled_.memory_stats().active.all.current, 1);
  driver_.run_until_idle(reader_handle_);
  expect_back(block);
  EXPECT_EQ(meddled_.memory_stats().active.all.current, 2);
}

TEST_P(MeddlingFollowedWaitsTest, ARefusedEventIsTriedAgainAndTold) {
  meddling_.record = CUDA_ERROR_LAUNCH_FAILED;
  void* const block = pass();
  EXPECT_EQ(meddled_.memory_stats().active.all.current, 1);
  EXPECT_EQ(meddled_.memory_stats().allocation.all.current, 0);
  EXPECT_THROW(static_cast<void>(meddled_.allocate(kKibi, owner_handle_)), DriverError);
  meddling_.record = CUDA_SUCCESS;
  expect_back(block);
}

TEST_P(MeddlingFollowedWaitsTest, AFailingQueryIsToldToTheRequestThatMadeIt) {
  void* const block = pass();
  meddling_.query = CUDA_ERROR_LAUNCH_FAILED;
  EXPECT_THROW(static_cast<void>(meddled_.allocate(kKibi, owner_handle_)), DriverError);
  EXPECT_EQ(meddled_.memory_stats().active.all.current, 1);
  expect_back(block);
}

// Two streams used the block: after the first event somebody looks, and the second is refused once.
TEST_P(MeddlingFollowedWaitsTest, ABlockOfTwoReadersEndsWithBoth) {
  for (const bool is_refused : {false, true}) {
    SCOPED_TRACE(is_refused);
    for (int i = 0; i < 3000; ++i) pass();
    void* const kept = meddled_.allocate(3 * kKibi, owner_handle_);
    void* const used = meddled_.allocate(kKibi, owner_handle_);
    meddled_.record_stream(used, reader_handle_);
    meddled_.record_stream(used, other_handle_);
    meddled_.record_stream(used, reader_handle_);
    driver_.occupy(other_handle_, 10ms);
    meddling_.looks = true;
    if (is_refused) meddling_.record = CUDA_ERROR_LAUNCH_FAILED;
    meddled_.deallocate(used);
    meddling_.looks = false;
    meddling_.record = CUDA_SUCCESS;
    void* const other = meddled_.allocate(kKibi, owner_handle_);
    EXPECT_NE(other, used);
    driver_.run_until_idle(other_handle_);
    EXPECT_EQ(meddled_.allocate(kKibi, owner_handle_), used);
    EXPECT_EQ(meddled_.memory_stats().active.all.current, 3);
    meddled_.check();
    meddled_.deallocate(kept);
    meddled_.deallocate(used);
    meddled_.deallocate(other);
  }
}

TEST_P(MeddlingStreamWaitsTest, ADriverThatWantsAContextGetsOne) {
  for (const bool to_query : {true, false}) {
    meddling_.wants_context = true;
    meddling_.wants_one_to_query = to_query;
    expect_records_with_frees();
  }
}

// Nothing was recorded, for the work is done: nothing is asked for.
TEST_P(MeddlingStreamWaitsTest, AStreamThatIsGoneWasWaitedForWithTheFree) {
  for (int i = 0; i < 5; ++i) turn(meddled_, kKibi);
  void* const block = meddled_.allocate(kKibi, owner_handle_);
  meddled_.record_stream(block, reader_handle_);
  driver_.destroy_stream(reader_handle_);
  meddled_.deallocate(block);
  EXPECT_EQ(driver_.calls("cuCtxSynchronize"), 1U);
  const auto calls = calls_of([&] { EXPECT_EQ(meddled_.allocate(kKibi, owner_handle_), block); });
  EXPECT_FALSE(calls.contains("cuEventQuery"));
  meddled_.deallocate(block);
  meddled_.check();
}

INSTANTIATE_TEST_SUITE_P(Each, MeddlingStreamWaitsTest, kEachPolicy, name_of_policy);
INSTANTIATE_TEST_SUITE_P(Each, MeddlingFollowedWaitsTest, kEachPolicy, name_of_policy);

}  // namespace
}  // namespace cistern
