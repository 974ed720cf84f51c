// Per-thread default streams: what is known of a thread's own, and what it leaves when the thread ends.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/stream_access.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

class OwnStreamsTest : public ::testing::TestWithParam<Policy> {
 protected:
  ~OwnStreamsTest() override {
    if (allocator_ == nullptr) return;
    EXPECT_NO_THROW(allocator_->check());
    for (const RaceReport& report : driver_.race_reports()) ADD_FAILURE() << report.to_string();
  }

  [[nodiscard]] void* take(std::size_t bytes, int device = 0) const {
    return allocator_->allocate(bytes, per_thread_handle(), device);
  }
  // As work on the calling thread's own stream.
  void write(void* block, std::size_t bytes, std::vector<int>* order = nullptr, int number = 0) {
    ASSERT_EQ(driver_.api().primary_ctx_retain(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(driver_.api().ctx_set_current(context_), CUDA_SUCCESS);
    driver_.launch(per_thread_handle(), {}, {{block, bytes}}, 10ms, [=] {
      if (order != nullptr) order->push_back(number);
    });
  }
  template <class Work>
  static void on_a_thread(Work&& work) {
    std::thread(std::forward<Work>(work)).join();
  }
  [[nodiscard]] std::int64_t reserved(int device = 0) const {
    return allocator_->memory_stats(device).reserved_bytes.all.current;
  }

  SimulatedDriver driver_{
      {.devices = 2, .capacity_bytes = 1024 * kMega, .backing = Backing::none, .races = RaceMode::collect}};
  CUcontext context_ = nullptr;
  std::unique_ptr<CachingAllocator> allocator_ = std::make_unique<CachingAllocator>(CachingAllocatorOptions{
      &driver_.api(),
      AllocatorOptions::parse(std::string("oom_dump:off,stream_hand_over:never,policy:") + to_string(GetParam()))});
};

TEST_P(OwnStreamsTest, ThreadsThatComeAndGoTakeNoMoreThanOne) {
  std::int64_t of_one = 0;
  for (int i = 0; i < 60; ++i) {
    on_a_thread([&] {
      void* const small = take(kKibi);
      void* const large = take(30 * kMega);
      write(large, 30 * kMega);
      for (void* const block : {small, large}) allocator_->deallocate(block);
    });
    if (i == 0) of_one = reserved();
    driver_.run_until_idle();
  }
  EXPECT_LE(reserved(), of_one + 2 * static_cast<std::int64_t>(kMega));
  EXPECT_EQ(driver_.host_synchronizations(), 0U);
}

TEST_P(OwnStreamsTest, WhoHasWhatAThreadLeftComesAfterItsWork) {
  std::vector<int> order;
  void* left = nullptr;
  on_a_thread([&] {
    left = take(30 * kMega);
    write(left, 30 * kMega, &order, 1);
    allocator_->deallocate(left);
  });
  on_a_thread([&] {
    void* const block = take(30 * kMega);
    if (GetParam() == Policy::classic) {
      EXPECT_EQ(block, left);
    }
    write(block, 30 * kMega, &order, 2);
    allocator_->deallocate(block);
  });
  driver_.run_until_idle();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(driver_.host_synchronizations(), 0U);
}

// Another thread frees what a thread had when it ended.
TEST_P(OwnStreamsTest, WhatIsFreedAfterTheThreadServesOthersToo) {
  void* kept = nullptr;
  on_a_thread([&] {
    kept = take(30 * kMega);
    write(kept, 30 * kMega);
  });
  const std::int64_t before = reserved();
  driver_.run_until_idle();  // where nothing is handed over, streams have only what nobody works on
  allocator_->deallocate(kept);
  on_a_thread([&] {
    void* const block = take(30 * kMega);
    write(block, 30 * kMega);
    allocator_->deallocate(block);
  });
  driver_.run_until_idle();
  EXPECT_EQ(reserved(), before);
}

TEST_P(OwnStreamsTest, EachThreadAndDeviceHasItsOwn) {
  void* const one = take(30 * kMega);
  void* const there = take(30 * kMega, 1);
  const std::int64_t before = reserved(1);
  allocator_->deallocate(one);
  allocator_->deallocate(there);
  on_a_thread([&] { EXPECT_NE(take(30 * kMega), one) << "nothing orders the threads' streams"; });
  EXPECT_EQ(take(30 * kMega), one);
  EXPECT_EQ(take(30 * kMega, 1), there);
  EXPECT_EQ(reserved(1), before);
  EXPECT_EQ(driver_.calls("cuStreamGetId"), 4U) << "once for each thread and device, and where a thread ends";
}

TEST_P(OwnStreamsTest, TheDriverIsAskedOnce) {
  void* const block = take(30 * kMega);
  allocator_->deallocate(block);
  const std::uint64_t calls = driver_.calls();
  EXPECT_EQ(take(30 * kMega), block);
  allocator_->deallocate(block, per_thread_handle());
  EXPECT_EQ(driver_.calls(), calls);
}

TEST_P(OwnStreamsTest, AnAllocatorThatEndedFirstIsNotTold) {
  std::promise<void> used;
  std::promise<void> ended;
  std::thread thread([&] {
    allocator_->deallocate(take(30 * kMega));
    used.set_value();
    ended.get_future().wait();
  });
  used.get_future().wait();
  allocator_.reset();
  ended.set_value();
  thread.join();
  EXPECT_EQ(driver_.used_bytes(), 0U);
}

TEST_P(OwnStreamsTest, AnAllocatorMayEndWhileThreadsDo) {
  for (int round = 0; round < 20; ++round) {
    SimulatedDriver driver({.backing = Backing::none});
    auto allocator = std::make_unique<CachingAllocator>(CachingAllocatorOptions{&driver.api(), {}});
    std::vector<std::promise<void>> used(4);
    std::vector<std::thread> threads;
    for (std::promise<void>& one : used)
      threads.emplace_back([&] {
        allocator->deallocate(allocator->allocate(kMega, per_thread_handle()));
        one.set_value();
      });
    for (std::promise<void>& one : used) one.get_future().wait();
    allocator.reset();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(driver.used_bytes(), 0U);
  }
}

// Its own stream may be one that is captured: then its memory is nobody's.
TEST_P(OwnStreamsTest, AThreadThatEndsLeavesCapturesWhole) {
  const StreamHandle other = driver_.create_stream();
  CUgraph graph = nullptr;
  ASSERT_EQ(driver_.api().stream_begin_capture(other, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  on_a_thread([&] { allocator_->deallocate(take(kMega)); });
  on_a_thread([&] {
    void* const block = take(kMega);
    write(block, kMega);
    allocator_->deallocate(block);
    ASSERT_EQ(driver_.api().stream_begin_capture(per_thread_handle(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  });
  EXPECT_EQ(driver_.api().stream_end_capture(other, &graph), CUDA_SUCCESS);
  EXPECT_EQ(driver_.api().graph_destroy(graph), CUDA_SUCCESS);
  driver_.run_until_idle();
}

// Another allocator on the same thread, where the first had been perhaps.
TEST_P(OwnStreamsTest, AnAllocatorIsNotTakenForOneThatEnded) {
  on_a_thread([&] {
    for (int i = 0; i < 3; ++i) {
      SimulatedDriver driver({.backing = Backing::none});
      CachingAllocator allocator({&driver.api(), AllocatorOptions::parse("policy:classic")});
      allocator.deallocate(allocator.allocate(kMega, per_thread_handle()));
      EXPECT_EQ(driver.calls("cuStreamGetId"), 1U);
    }
  });
}

// Made before the thread's own streams are kept, so that it ends after them.
struct AllocatesAtTheEnd {
  ~AllocatesAtTheEnd() {
    for (int i = 0; allocator != nullptr && i < 2; ++i) {
      allocator->deallocate(allocator->allocate(kMega, per_thread_handle()));
      ++*done;
    }
  }
  CachingAllocator* allocator = nullptr;
  int* done = nullptr;
};

TEST_P(OwnStreamsTest, DestructorsThatRunLaterMayStillAllocate) {
  int done = 0;
  on_a_thread([&] {
    static thread_local AllocatesAtTheEnd last;
    last.allocator = allocator_.get();
    last.done = &done;
    allocator_->deallocate(take(kMega));
  });
  EXPECT_EQ(done, 2);
  EXPECT_EQ(driver_.calls("cuStreamGetId"), 2U + 2U) << "nothing is kept any more, for nobody would end it";
}

TEST_P(OwnStreamsTest, ThreadsEndBesideOthersThatAllocate) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 10; ++k)
        on_a_thread([&] {
          std::vector<void*> blocks;
          for (std::size_t bytes = kKibi; bytes < 8 * kMega; bytes *= 3) blocks.push_back(take(bytes));
          for (void* const block : blocks) allocator_->deallocate(block);
        });
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator_->memory_stats().allocation.all.current, 0);
}

INSTANTIATE_TEST_SUITE_P(Policies, OwnStreamsTest,
                         ::testing::Values(Policy::classic, Policy::expandable, Policy::paged),
                         [](const auto& policy) { return std::string(to_string(policy.param)); });

}  // namespace
}  // namespace cistern
