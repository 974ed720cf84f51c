// Streams that serve themselves: several threads, whose figures are as exact as those of one.
#include <cistern/allocator.h>
#include <cistern/history.h>
#include <cistern/scope.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/stream_access.h"
#include "tests/allocator/stream_hits_fixture.h"
#include "tests/byte_units.h"
#include "tests/property.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

TEST_P(StreamHitsTest, ThePeakIsThatOfAllStreamsTogether) {
  void* of_first = allocator_.allocate(4 * kKibi, first_);
  void* of_second = allocator_.allocate(8 * kKibi, second_);
  EXPECT_EQ(stats().allocated_bytes.all.peak, std::int64_t{12 * kKibi});
  allocator_.deallocate(of_first);
  allocator_.deallocate(of_second);
  // One after the other: never as much at once.
  for (int i = 0; i < 100; ++i) {
    for (const StreamHandle stream : {first_, second_}) {
      void* block = allocator_.allocate(10 * kKibi, stream);
      allocator_.deallocate(block);
    }
  }
  EXPECT_EQ(stats().allocated_bytes.all.peak, std::int64_t{12 * kKibi});
  of_first = allocator_.allocate(10 * kKibi, first_);
  EXPECT_EQ(stats().allocated_bytes.all.peak, std::int64_t{12 * kKibi});
  of_second = allocator_.allocate(10 * kKibi, second_);
  void* more = allocator_.allocate(512, first_);
  allocator_.deallocate(more);
  allocator_.deallocate(of_first);
  allocator_.deallocate(of_second);
  EXPECT_EQ(stats().allocated_bytes.all.peak, std::int64_t{20 * kKibi + 512});
  EXPECT_EQ(stats().allocation.all.peak, 3);
  expect_nothing_live();
}

// Random blocks of several threads, each on its own stream, in rounds: at the end of a round all hold what
// they hold, and the figures are the sums.
TEST_P(StreamHitsTest, FiguresOfThreadsOnTheirOwnStreamsAddUp) {
  constexpr std::size_t kThreads = 3;
  constexpr int kRounds = 20;
  const int operations = static_cast<int>(scaled_programs(5000, 5));
  std::array<std::atomic<std::int64_t>, kThreads> live{};
  std::atomic<std::int64_t> allocations{0};
  std::int64_t highest = 0;
  const auto compare = [&]() noexcept {
    std::int64_t sum = 0;
    for (const auto& each : live) sum += each;
    const MemoryStats now = stats();
    EXPECT_EQ(now.allocated_bytes.all.current, sum);
    EXPECT_EQ(now.allocation.all.allocated, allocations);
    highest = std::max(highest, sum);
    EXPECT_GE(now.allocated_bytes.all.peak, highest);
    allocator_.check();
  };
  std::barrier round(kThreads, compare);
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      const StreamHandle stream = driver_.create_stream();
      std::mt19937 random(static_cast<unsigned>(thread) + 20261122);
      std::vector<std::pair<void*, std::int64_t>> blocks;
      for (int i = 0; i < kRounds; ++i) {
        for (int step = 0; step < operations; ++step) {
          if (blocks.size() < 40 && random() % 2 == 0) {
            const std::size_t bytes = (random() % (random() % 8 == 0 ? 8000 : 40) + 1) * 512;
            const auto size = static_cast<std::int64_t>(bytes);
            void* block = allocator_.allocate(bytes, stream);
            // A large block may be a little larger than what was asked for: counted as it is.
            blocks.emplace_back(block, size);
            ++allocations;
          } else if (!blocks.empty()) {
            const std::size_t place = random() % blocks.size();
            allocator_.deallocate(blocks[place].first);
            blocks[place] = blocks.back();
            blocks.pop_back();
          }
        }
        // What is live by the allocator's own count of the stream.
        live[thread] = 0;
        for (const StreamStats& of : allocator_.stream_stats())
          if (of.stream == static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(stream)))
            live[thread] = of.live_bytes;
        std::int64_t requested = 0;
        for (const auto& [block, size] : blocks) requested += size;
        EXPECT_GE(live[thread], requested);
        round.arrive_and_wait();
      }
      for (const auto& [block, size] : blocks) allocator_.deallocate(block);
    });
  for (std::thread& thread : threads) thread.join();
  expect_nothing_live();
}

TEST_P(StreamHitsTest, BlocksThatOtherThreadsFreeComeBack) {
  wake(first_);
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(allocator_.allocate(4 * kKibi, first_));
  on_another_thread([&] {
    for (void* block : blocks) allocator_.deallocate(block);
  });
  std::vector<void*> again;
  for (int i = 0; i < 10; ++i) again.push_back(allocator_.allocate(4 * kKibi, first_));
  std::sort(blocks.begin(), blocks.end());
  std::sort(again.begin(), again.end());
  EXPECT_EQ(again, blocks);
  for (void* block : again) allocator_.deallocate(block);
  expect_nothing_live();
}

// More than there is room for on the way, and nobody who comes by.
TEST_P(StreamHitsTest, AnyNumberOfBlocksThatOtherThreadsFreeIsCounted) {
  wake(first_);
  std::vector<void*> blocks;
  for (int i = 0; i < 300; ++i) blocks.push_back(allocator_.allocate(kKibi, first_));
  on_another_thread([&] {
    for (void* block : blocks) allocator_.deallocate(block);
    EXPECT_EQ(stats().allocation.all.current, 0);
  });
  expect_nothing_live();
}

TEST_P(StreamHitsTest, WhatIsOnItsWayServesARequestThatNeedsAllMemory) {
  const std::size_t most = 4000 * kMega;
  void* block = allocator_.allocate(most, first_);
  allocator_.deallocate(block);
  block = allocator_.allocate(most, first_);
  on_another_thread([&] { allocator_.deallocate(block); });
  void* of_another_stream = nullptr;
  EXPECT_NO_THROW(of_another_stream = allocator_.allocate(most, second_));
  allocator_.deallocate(of_another_stream);
  expect_nothing_live();
}

// What was handed out last may be free while it stands, but not while another stream uses it.
TEST_P(StreamHitsTest, AUseOfTheLastBlockIsWaitedFor) {
  wake(first_);
  void* block = allocator_.allocate(kKibi, first_);
  driver_.occupy(second_, 10ms);
  allocator_.record_stream(block, StreamAccess::wrap(driver_.api(), {second_, 77}, 0, std::make_shared<int>()));
  allocator_.deallocate(block);
  EXPECT_EQ(stats().active.all.current, 1);
  void* other = allocator_.allocate(kKibi, first_);
  EXPECT_NE(other, block);
  driver_.run_until_idle(second_);
  EXPECT_EQ(allocator_.allocate(kKibi, first_), block);
  allocator_.deallocate(block);
  allocator_.deallocate(other);
  expect_nothing_live();
}

TEST_P(StreamHitsTest, ABlockThatAnotherStreamUsedWaitsForItWhoeverFreesIt) {
  wake(first_);
  void* block = allocator_.allocate(3 * kMega, first_);
  driver_.occupy(second_, 10ms);
  allocator_.record_stream(block, second_);
  on_another_thread([&] { allocator_.deallocate(block); });
  EXPECT_EQ(stats().active.all.current, 1);
  EXPECT_EQ(stats().allocation.all.current, 0);
  EXPECT_NE(allocator_.allocate(3 * kMega, first_), block);
  driver_.run_until_idle(second_);
  EXPECT_EQ(allocator_.allocate(3 * kMega, first_), block);
  allocator_.check();
}

TEST_P(StreamHitsTest, AForeignOrFreedAddressFromAnotherThreadChangesNothing) {
  wake(first_);
  void* block = allocator_.allocate(4 * kKibi, first_);
  void* freed = allocator_.allocate(4 * kKibi, first_);
  allocator_.deallocate(freed);
  ::testing::internal::CaptureStderr();
  on_another_thread([&] {
    allocator_.deallocate(static_cast<char*>(block) + 512);
    allocator_.deallocate(freed);
  });
  EXPECT_EQ(stats().allocation.all.current, 1);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
  EXPECT_NE(said.find("not the address of a live block"), std::string::npos) << said;
  allocator_.deallocate(block);
  expect_nothing_live();
}

TEST_P(StreamHitsTest, AStreamThatEndsLeavesWhatOtherThreadsFreed) {
  wake(first_);
  void* block = allocator_.allocate(4 * kMega, first_);
  void* kept = allocator_.allocate(kKibi, first_);
  std::atomic<int> step{0};
  std::thread other([&] {
    allocator_.deallocate(block);
    step = 1;
    step.notify_one();
    step.wait(1);
    allocator_.deallocate(kept);
  });
  step.wait(0);
  allocator_.release_stream(first_);
  step = 2;
  step.notify_one();
  other.join();
  expect_nothing_live();
  void* again = allocator_.allocate(4 * kMega, second_);
  EXPECT_TRUE(again == block || is_paged()) << "the ended stream's memory serves others";
  allocator_.check();
}

// A tag, a budget and a private pool are looked at by every request from the moment on that they are there.
TEST_P(StreamHitsTest, WhatEveryRequestLooksAtEndsTheShortWay) {
  wake(first_);
  void* block = allocator_.allocate(2 * kKibi, first_);
  {
    const TagScope tag("t");
    allocator_.deallocate(allocator_.allocate(kKibi, first_));
    void* tagged = allocator_.allocate(kKibi, first_);
    std::int64_t live = 0;
    for (const TagStats& figures : allocator_.tag_stats())
      live += figures.tag == "t" ? figures.allocated_bytes.current : 0;
    EXPECT_EQ(live, std::int64_t{kKibi});
    allocator_.deallocate(tagged);
  }
  const PoolId pool{7, 0};
  allocator_.begin_allocate_to_pool(0, pool, PoolFilter::stream(first_));
  void* of_pool = allocator_.allocate(2 * kKibi, first_);
  EXPECT_GT(allocator_.reserved_bytes_by_private_pools()[std::pair(pool.first, pool.second)].all.current, 0);
  allocator_.deallocate(of_pool);
  allocator_.end_allocate_to_pool(0, pool);
  allocator_.deallocate(block);
  expect_nothing_live();
}

TEST_P(StreamHitsTest, WhatWasOversizeWhenItCameIsOneLessWhenItGoes) {
  allocator_.set_options("max_split_size_mb:20");
  void* block = allocator_.allocate(30 * kMega, first_);
  EXPECT_EQ(stats().oversize_allocations.current, 1);
  allocator_.set_options("");
  wake(first_);
  allocator_.deallocate(block);
  EXPECT_EQ(stats().oversize_allocations.current, 0);
  expect_nothing_live();
}

// Blocks on both sides of the limit come and go, and those above it are told apart.
TEST_P(StreamHitsTest, OversizeBlocksAreCountedBesideOthers) {
  allocator_.set_options("max_split_size_mb:20");
  wake(first_);
  for (int i = 0; i < 4; ++i) {
    void* const below = allocator_.allocate(15 * kMega, first_);
    void* const above = allocator_.allocate(30 * kMega, first_);
    EXPECT_EQ(stats().oversize_allocations.current, 1);
    allocator_.deallocate(above);
    allocator_.deallocate(below);
  }
  EXPECT_EQ(stats().oversize_allocations.current, 0);
  EXPECT_EQ(stats().oversize_allocations.allocated, 4);
  expect_nothing_live();
}

// A free that names the stream of the last use asks for its event before it returns, on whichever thread: that stream
// may be the thread's own, and may be over right after.
TEST_P(StreamHitsTest, AFreeThatNamesAStreamIsGuardedInTheCall) {
  void* blocks[2] = {};
  wake(first_);
  for (void*& block : blocks) block = allocator_.allocate(kKibi, first_);
  on_another_thread([&] {
    static_cast<void>(allocator_.allocate(kKibi, second_));  // a context is current, and an event at hand
    std::uint64_t events = driver_.calls("cuEventRecord");
    allocator_.deallocate(blocks[0], per_thread_handle());
    EXPECT_EQ(driver_.calls("cuEventRecord"), events + 1);
    const StreamHandle brief = driver_.create_stream();
    events = driver_.calls("cuEventRecord");
    allocator_.deallocate(blocks[1], brief);
    EXPECT_EQ(driver_.calls("cuEventRecord"), events + 1);
    driver_.destroy_stream(brief);
  });
  const std::uint64_t asked = driver_.calls("cuStreamGetId");
  for (int i = 0; i < 3; ++i) static_cast<void>(allocator_.allocate(kKibi, first_));
  EXPECT_EQ(driver_.calls("cuStreamGetId"), asked + 3) << "for its own requests, whose stream nobody registered";
  EXPECT_EQ(driver_.host_synchronizations(), 0U);
  allocator_.check();
}

TEST_P(StreamHitsTest, TheHistoryHasEveryEventOfEveryThread) {
  HistoryOptions options;
  options.context = HistoryContext::none;
  options.max_entries = 100000;
  options.clear_history = true;
  allocator_.record_history(options);
  constexpr int kPairs = 500;
  std::array<std::thread, 2> threads;
  std::array<StreamHandle, 2> streams{first_, second_};
  for (std::size_t i = 0; i < 2; ++i)
    threads[i] = std::thread([&, i] {
      for (int pair = 0; pair < kPairs; ++pair) {
        void* block = allocator_.allocate(kKibi * (i + 1), streams[i]);
        allocator_.deallocate(block);
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::array<std::vector<TraceAction>, 2> actions;
  std::int64_t time = 0;
  const Snapshot snapshot = allocator_.snapshot();
  for (const TraceEntry& entry : snapshot.device_traces.at(0)) {
    EXPECT_GE(entry.time_us, time);
    time = entry.time_us;
    if (entry.action == TraceAction::segment_alloc || entry.action == TraceAction::segment_map ||
        entry.action == TraceAction::snapshot)
      continue;
    const std::size_t of = entry.stream == static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(first_)) ? 0 : 1;
    EXPECT_EQ(entry.size, static_cast<std::int64_t>(kKibi * (of + 1)));
    actions[of].push_back(entry.action);
  }
  for (const auto& of : actions) {
    ASSERT_EQ(of.size(), std::size_t{3 * kPairs});
    for (std::size_t i = 0; i < of.size(); i += 3) {
      EXPECT_EQ(of[i], TraceAction::alloc);
      EXPECT_EQ(of[i + 1], TraceAction::free_requested);
      EXPECT_EQ(of[i + 2], TraceAction::free_completed);
    }
  }
}

// What one stream staged is written after what another did later.
TEST_P(StreamHitsTest, TheHistoryIsInTheOrderOfTime) {
  HistoryOptions options;
  options.context = HistoryContext::none;
  allocator_.record_history(options);
  wake(first_);
  wake(second_);
  options.clear_history = true;
  allocator_.record_history(options);
  void* block = allocator_.allocate(kKibi, first_);
  for (int i = 0; i < 100; ++i) allocator_.deallocate(allocator_.allocate(2 * kKibi, second_));
  const Snapshot snapshot = allocator_.snapshot();
  const std::vector<TraceEntry>& entries = snapshot.device_traces.at(0);
  ASSERT_EQ(entries.size(), std::size_t{1 + 300});
  EXPECT_EQ(entries.front().address, reinterpret_cast<std::uintptr_t>(block));
  EXPECT_EQ(entries.front().action, TraceAction::alloc);
  allocator_.deallocate(block);
}

// Threads that pass blocks on, while a third looks.
TEST_P(StreamHitsTest, ThreadsHandBlocksOnWhileAnotherLooks) {
  const int blocks = static_cast<int>(scaled_programs(50000, 10));
  std::array<std::atomic<void*>, 2> slots{};
  const auto pass_on = [&](std::size_t self, StreamHandle stream) {
    for (int i = 0; i < blocks; ++i) {
      void* block = allocator_.allocate(4 * kKibi, stream);
      allocator_.deallocate(slots[1 - self].exchange(block));
      allocator_.deallocate(slots[self].exchange(nullptr));
    }
  };
  std::atomic<bool> ends{false};
  std::thread looks([&] {
    while (!ends) {
      const MemoryStats now = stats();
      EXPECT_LE(now.allocation.all.current, now.allocation.all.peak);
      EXPECT_LE(now.allocation.all.peak, 4) << "two in hand and two on their way";
      allocator_.check();
      std::this_thread::yield();
    }
  });
  std::thread first([&] { pass_on(0, first_); });
  std::thread second([&] { pass_on(1, second_); });
  first.join();
  second.join();
  ends = true;
  looks.join();
  for (auto& slot : slots) allocator_.deallocate(slot.load());
  EXPECT_EQ(stats().allocation.all.allocated, std::int64_t{2} * blocks);
  expect_nothing_live();
}

INSTANTIATE_TEST_SUITE_P(, StreamHitsTest, ::testing::Values(Policy::classic, Policy::expandable, Policy::paged),
                         [](const auto& policy) { return std::string(to_string(policy.param)); });

}  // namespace
}  // namespace cistern
