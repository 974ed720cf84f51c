// The biased lock: every order of two threads' steps, to a bound, and threads of this machine.
#include "allocator/biased_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/allocator/every_order.h"
#include "tests/property.h"
#include "tests/races/choices.h"

namespace cistern {
namespace {

using testing::DelayingProcessors;
using testing::TwoProcessors;
using Mutex = BasicBiasedMutex<DelayingProcessors>;

// What the lock guards: at most one is inside, and each sees what the one before did.
struct Guarded {
  void enter() {
    mutex.lock();
    add();
    mutex.unlock();
  }
  // Where it leans towards the thread what was seen before is as it was.
  void enter_at_once() {
    const int before = count.load(std::memory_order_relaxed);
    if (!mutex.try_enter()) {
      enter();
      return;
    }
    if (count.load(std::memory_order_relaxed) != before) broken = true;
    add();
    mutex.leave();
  }
  void add() {
    if (++inside != 1) broken = true;
    const int seen = count.load(std::memory_order_relaxed);
    count.store(seen + 1, std::memory_order_relaxed);
    --inside;
  }

  Mutex mutex;
  DelayingProcessors::Atomic<int> count{0};
  int inside = 0;
  bool broken = false;
};

// One more at full counts, and fewer under a sanitizer.
int most_stops() { return kSanitized ? 2 : scaled(10) < 10 ? 3 : 4; }

// In every order; each entry counts.
template <class First, class Second>
void expect_no_entry_lost(int entries, const First& first, const Second& second) {
  const std::size_t orders = testing::in_every_order(
      most_stops(),
      [] {
        auto guarded = std::make_unique<Guarded>();
        make_it_lean(guarded->mutex);
        return guarded;
      },
      first, second,
      [&](const Guarded& guarded, const Choices& order) {
        EXPECT_FALSE(guarded.broken) << order;
        EXPECT_EQ(guarded.count.load(std::memory_order_relaxed), entries) << order;
      });
  EXPECT_GT(orders, 500U);
}

TEST(BiasedMutex, OneThreadAtATimeWhereAnotherTakesTheBiasAway) {
  expect_no_entry_lost(
      3,
      [](Guarded& guarded) {
        guarded.enter();
        guarded.enter();
      },
      [](Guarded& guarded) { guarded.enter(); });
}

TEST(BiasedMutex, WhoEntersAtOnceMissedNobody) {
  expect_no_entry_lost(
      3,
      [](Guarded& guarded) {
        guarded.enter();
        guarded.enter_at_once();
      },
      [](Guarded& guarded) { guarded.enter_at_once(); });
}

// The first thread has found that the lock leans towards it, and is stopped; the lock leans towards the
// second when it goes on.
TEST(BiasedMutex, WhoComesLateForItsBiasDisturbsNobody) {
  expect_no_entry_lost(
      3, [](Guarded& guarded) { guarded.enter(); },
      [](Guarded& guarded) {
        guarded.enter();
        if (guarded.inside == 0) make_it_lean(guarded.mutex);
        guarded.enter();
      });
}

// Of two threads the second cannot be told from others.
struct StrangerProcessors : DelayingProcessors {
  [[nodiscard]] static Thread this_thread() noexcept { return TwoProcessors::self == 0 ? 1 : Thread{}; }
  [[nodiscard]] static Thread this_thread_if_known() noexcept { return this_thread(); }
};

// The lock is one entry away from leaning towards the first.
TEST(BiasedMutex, WhoCannotBeToldFromOthersIsNotTakenForTheOneThatItBeginsToLeanTo) {
  struct World {
    World() {
      for (int i = 1; i < 64; ++i) enter();
    }
    void enter() {
      mutex.lock();
      ++inside;
      testing::let_pass();
      are_apart = are_apart && inside == 1;
      --inside;
      mutex.unlock();
    }
    BasicBiasedMutex<StrangerProcessors> mutex;
    int inside = 0;
    bool are_apart = true;
    bool entered = false;
  };
  const auto in_every_order = [](const auto& stranger) {
    testing::in_every_order(
        kSanitized ? 2 : 4, [] { return std::make_unique<World>(); },
        [](World& world) {
          world.enter();
          world.enter();
        },
        stranger,
        [](World& world, const Choices& order) {
          EXPECT_FALSE(world.entered) << order;
          EXPECT_TRUE(world.are_apart) << order;
        });
  };
  in_every_order([](World& world) { world.entered = world.mutex.try_enter(); });
  in_every_order([](World& world) { world.enter(); });
}

TEST(BiasedMutex, ThreadsOfThisMachineCountWithoutLoss) {
  BiasedMutex mutex;
  std::int64_t count = 0;
  const auto work = [&](int rounds, int alone) {
    for (int round = 0; round < rounds; ++round)
      for (int i = 0; i < alone; ++i) {
        const std::lock_guard lock(mutex);
        ++count;
      }
  };
  work(1, 1000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work, 200, 100 + i);
  for (std::thread& thread : threads) thread.join();
  work(1, 1000);
  EXPECT_EQ(count, 2000 + 200 * (100 + 101 + 102 + 103));
}

TEST(ThreadMark, IsTheThreadsOwnWhileItLivesAndANewOnesAfterwards) {
  const ThreadMark* const mine = ThreadMark::of_this_thread();
  ASSERT_NE(mine, nullptr);
  EXPECT_EQ(ThreadMark::of_this_thread(), mine);
  const ThreadMark* first = nullptr;
  const ThreadMark* second = nullptr;
  std::thread([&] { first = ThreadMark::of_this_thread(); }).join();
  std::thread([&] { second = ThreadMark::of_this_thread(); }).join();
  EXPECT_NE(first, mine);
  EXPECT_EQ(second, first);
}

TEST(ThreadMark, IsNoOthersWhileThreadsComeAndGo) {
  std::mutex mutex;
  std::set<const ThreadMark*> in_use;
  std::atomic<int> twice{0};
  const auto come_and_go = [&] {
    const ThreadMark* const mark = ThreadMark::of_this_thread();
    {
      const std::lock_guard lock(mutex);
      if (!in_use.insert(mark).second) ++twice;
    }
    std::this_thread::yield();
    const std::lock_guard lock(mutex);
    in_use.erase(mark);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (long each = 0; each < scaled(2000); ++each) std::thread(come_and_go).join();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(twice, 0);
}

}  // namespace
}  // namespace cistern
