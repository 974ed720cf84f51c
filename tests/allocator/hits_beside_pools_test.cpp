// Streams serve themselves while a thread or a stream is recorded to a pool: whom that does not take goes on without
// the heap's lock as long as no free waits, and what a recording takes is the pool's, whatever its stream has at hand.

#include <cistern/mem_pool.h>

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include "tests/allocator/private_pools_fixture.h"
#include "tests/allocator/without_the_heaps_lock.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

// A thread whose requests come from the pool for as long as this lives.
class ThreadInPool {
 public:
  explicit ThreadInPool(const MemPool& pool)
      : thread_([this, &pool] {
          const MemPoolGuard guard(pool);
          is_inside_.set_value();
          leaves_.get_future().wait();
        }) {
    is_inside_.get_future().wait();
  }
  ~ThreadInPool() {
    leaves_.set_value();
    thread_.join();
  }
  ThreadInPool(const ThreadInPool&) = delete;
  ThreadInPool& operator=(const ThreadInPool&) = delete;

 private:
  std::promise<void> is_inside_;
  std::promise<void> leaves_;
  std::thread thread_;
};

class BesidePoolsWithoutTheHeapsLockTest : public WithoutTheHeapsLockTest,
                                           public ::testing::WithParamInterface<const char*> {
 protected:
  BesidePoolsWithoutTheHeapsLockTest() : WithoutTheHeapsLockTest(GetParam()) {}
  void pairs(int count) {
    for (; count > 0; --count) allocator_.deallocate(allocator_.allocate(kKibi, stream_));
  }
  void steps(int count) {
    std::vector<void*> blocks(8);
    for (; count > 0; --count) {
      for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = allocator_.allocate((i + 1) * kKibi, stream_);
      for (void* const block : blocks) allocator_.deallocate(block);
    }
  }

  const StreamHandle stream_ = driver_.create_stream();
  const StreamHandle other_ = driver_.create_stream();
};

TEST_P(BesidePoolsWithoutTheHeapsLockTest, AThreadInAPoolHoldsUpNobody) {
  const MemPool pool(allocator_);
  const ThreadInPool inside(pool);
  std::mt19937_64 random(20261201);
  std::vector<void*> live(16, nullptr);
  const auto work = [&](int count) {
    pairs(count);
    steps(count);
    replace(live, random, stream_, count);
  };
  EXPECT_TRUE(goes_on(
      [&] {
        make_room(stream_, 128);
        work(500);
      },
      [&] { work(100); }));
  for (void* const block : live) allocator_.deallocate(block);
}

TEST_P(BesidePoolsWithoutTheHeapsLockTest, NorDoesAStreamThatIsRecorded) {
  allocator_.begin_allocate_to_pool(0, kShared, PoolFilter::stream(other_));
  EXPECT_TRUE(goes_on(
      [&] {
        make_room(stream_, 128);
        pairs(100);
        steps(100);
      },
      [&] {
        pairs(100);
        steps(10);
      }));
  allocator_.end_allocate_to_pool(0, kShared);
  allocator_.release_pool(0, kShared);
}

INSTANTIATE_TEST_SUITE_P(Each, BesidePoolsWithoutTheHeapsLockTest,
                         ::testing::Values("policy:classic", "policy:expandable", "policy:paged"));

class HitsBesidePoolsTest : public PrivatePoolsTest, public ::testing::WithParamInterface<const char*> {
 protected:
  HitsBesidePoolsTest() : PrivatePoolsTest(GetParam()) {}
  ~HitsBesidePoolsTest() override {
    for (void* const block : kept_) allocator_.deallocate(block);
  }

  // On a thread that no recording takes.
  static void elsewhere(const std::function<void()>& work) { std::thread(work).join(); }
  void pairs(int count) {
    for (; count > 0; --count) allocator_.deallocate(allocator_.allocate(kKibi, stream_));
  }
  // Steps that come again, and the beginning of one.
  void steps(int count) {
    for (; count > 0; --count) {
      std::vector<void*> blocks;
      for (std::size_t i = 1; i <= 8; ++i) blocks.push_back(allocator_.allocate(i * kKibi, stream_));
      for (void* const block : blocks) allocator_.deallocate(block);
    }
    keep(allocator_.allocate(kKibi, stream_));
  }
  void* keep(void* block) {
    kept_.push_back(block);
    return block;
  }
  // Of what is live at the end.
  [[nodiscard]] PoolId pool_of_request(std::size_t bytes) { return pool_of(keep(allocator_.allocate(bytes, stream_))); }

  std::vector<void*> kept_;
};

TEST_P(HitsBesidePoolsTest, ABlockThatStandsIsNotForWhoIsRecorded) {
  allocator_.begin_allocate_to_pool(0, kShared, PoolFilter::this_thread());
  elsewhere([&] { pairs(100); });
  EXPECT_EQ(pool_of_request(kKibi), kShared);
  allocator_.end_allocate_to_pool(0, kShared);
  EXPECT_TRUE(pool_of_request(kKibi).is_default());
  allocator_.release_pool(0, kShared);
}

TEST_P(HitsBesidePoolsTest, NorIsAStepThatIsExpected) {
  allocator_.begin_allocate_to_pool(0, kShared, PoolFilter::this_thread());
  elsewhere([&] { steps(100); });
  EXPECT_EQ(pool_of_request(2 * kKibi), kShared);
  allocator_.end_allocate_to_pool(0, kShared);
  allocator_.release_pool(0, kShared);
}

TEST_P(HitsBesidePoolsTest, WhatIsKnownBeforeIsNotForARecording) {
  PoolId id = kShared;
  for (const PoolFilter& filter :
       {PoolFilter::this_thread(), PoolFilter::stream(stream_), PoolFilter::every_stream()}) {
    pairs(100);
    steps(100);
    allocator_.begin_allocate_to_pool(0, id, filter);
    EXPECT_EQ(pool_of_request(2 * kKibi), id);
    EXPECT_EQ(pool_of_request(kKibi), id);
    allocator_.end_allocate_to_pool(0, id);
    allocator_.release_pool(0, id);
    ++id.second;
  }
}

TEST_P(HitsBesidePoolsTest, ACaptureGetsItsPoolAmongHits) {
  pairs(100);
  steps(100);
  begin_capture(kGraph, 1);
  EXPECT_EQ(pool_of_request(2 * kKibi), kGraph);
  EXPECT_EQ(pool_of_request(kKibi), kGraph);
  end_capture(kGraph);
  EXPECT_TRUE(pool_of_request(kKibi).is_default());
  allocator_.release_pool(0, kGraph);
}

// Only the driver knows that it does.
TEST_P(HitsBesidePoolsTest, AStreamThatJoinsACaptureGetsItsPool) {
  begin_capture(kGraph, 1);
  const auto pairs_on_other = [&] {
    for (int i = 0; i < 100; ++i) allocator_.deallocate(allocator_.allocate(kKibi, other_));
  };
  elsewhere(pairs_on_other);
  captures_.begin_capture(other_, 1);
  EXPECT_EQ(pool_of(keep(allocator_.allocate(kKibi, other_))), kGraph);
  captures_.end_capture(other_);
  end_capture(kGraph);
  allocator_.release_pool(0, kGraph);
}

TEST_P(HitsBesidePoolsTest, FreesWaitAndEndBesideAThreadInAPool) {
  const StreamHandle third = driver_.create_stream();
  const MemPool pool(allocator_);
  const ThreadInPool inside(pool);
  for (int i = 0; i < 20; ++i) {
    void* const block = allocator_.allocate(kKibi, other_);
    allocator_.record_stream(block, third);
    allocator_.deallocate(block);
    EXPECT_EQ(allocator_.memory_stats(0).active.all.current, 1);
  }
  allocator_.deallocate(allocator_.allocate(kKibi, other_));
  EXPECT_EQ(allocator_.memory_stats(0).active.all.current, 0);
}

// PyTorch's rule: what another stream uses is put off as long as a capture is under way, whichever stream that is.
TEST_P(HitsBesidePoolsTest, NoEventIsRecordedInACapture) {
  const StreamHandle third = driver_.create_stream();
  const auto turn = [&] {
    void* const block = allocator_.allocate(kKibi, other_);
    allocator_.record_stream(block, third);
    allocator_.deallocate(block);
  };
  for (int i = 0; i < 20; ++i) turn();
  allocator_.begin_allocate_to_pool(0, kGraph, PoolFilter::stream(stream_));
  const auto records = [&] { return driver_.calls_by_name()["cuEventRecord"]; };
  const std::uint64_t before = records();
  turn();
  EXPECT_EQ(records(), before);
  allocator_.end_allocate_to_pool(0, kGraph);
  turn();
  EXPECT_GT(records(), before);
  driver_.run_until_idle();
  allocator_.deallocate(allocator_.allocate(kKibi, other_));
  EXPECT_EQ(allocator_.memory_stats(0).active_bytes.all.current, 0);
  allocator_.release_pool(0, kGraph);
}

// Which a driver forbids meanwhile, but in relaxed mode: the fixture looks.
TEST_P(HitsBesidePoolsTest, NoEventIsAskedForInACapture) {
  const StreamHandle third = driver_.create_stream();
  for (int i = 0; i < 3; ++i) allocator_.deallocate(allocator_.allocate(kKibi, other_));
  void* const used = allocator_.allocate(kKibi, other_);
  driver_.launch(third, {}, {{used, kKibi}}, std::chrono::milliseconds(1), [] {});
  allocator_.record_stream(used, third);
  allocator_.deallocate(used);
  captures_.begin_capture(stream_, 1);
  allocator_.begin_allocate_to_pool(0, kGraph, PoolFilter::stream(stream_));
  for (int i = 0; i < 20; ++i) allocator_.deallocate(allocator_.allocate(2 * kKibi, other_));
  end_capture(kGraph);
  allocator_.release_pool(0, kGraph);
}

INSTANTIATE_TEST_SUITE_P(Each, HitsBesidePoolsTest,
                         ::testing::Values("oom_dump:off,policy:classic", "oom_dump:off,policy:expandable",
                                           "oom_dump:off,policy:paged"));

}  // namespace
}  // namespace cistern
