// Threads that allocate, hand blocks to each other, use them on several streams and free
// them, while others read statistics, take snapshots and empty the cache. What a thread owns
// is its own: a pattern in the bytes would show two owners.

#include <cistern/allocator.h>
#include <cistern/mem_pool.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tests/byte_units.h"
#include "tests/property.h"

namespace cistern {
namespace {

constexpr int kThreads = 4;

struct Owned {
  unsigned char* pointer;
  std::size_t bytes;
  unsigned char mark;
};

// Blocks on their way from one thread to another.
class Exchange {
 public:
  void put(const Owned& block) {
    const std::lock_guard lock(mutex_);
    blocks_.push_back(block);
  }
  bool take(Owned* block) {
    const std::lock_guard lock(mutex_);
    if (blocks_.empty()) return false;
    *block = blocks_.front();
    blocks_.pop_front();
    return true;
  }

 private:
  std::mutex mutex_;
  std::deque<Owned> blocks_;
};

struct Shared {
  Shared(std::size_t capacity, const char* options)
      : driver({.capacity_bytes = capacity, .backing = Backing::memory}),
        allocator({.driver = &driver.api(),
                   .options = AllocatorOptions::parse(options, AllocatorOptions::parse("policy:classic"))}) {
    for (int i = 0; i < kThreads; ++i) streams.push_back(driver.create_stream());
  }
  SimulatedDriver driver;
  CachingAllocator allocator;
  std::vector<StreamHandle> streams;
  Exchange exchange;
  std::atomic<int> overlaps{0};
  std::atomic<int> refused{0};
};

// Marks the block's two ends: enough to see another owner, cheap enough to run often.
void mark(const Owned& block) {
  block.pointer[0] = block.mark;
  block.pointer[block.bytes - 1] = block.mark;
}

void verify(const Owned& block, Shared& shared) {
  if (block.pointer[0] != block.mark || block.pointer[block.bytes - 1] != block.mark) ++shared.overlaps;
}

class Worker {
 public:
  Worker(Shared& shared, int number)
      : shared_(shared), number_(number), random_(static_cast<std::uint32_t>(1000 + number)) {}

  void run(long operations) {
    for (long i = 0; i < operations; ++i) step();
    while (!owned_.empty()) release();
  }

 private:
  void step() {
    const auto choice = random_() % 100;
    if (owned_.size() < 4 || (choice < 45 && owned_.size() < 64))
      acquire();
    else if (choice < 80)
      release();
    else if (choice < 88)
      shared_.exchange.put(take_one());
    else if (choice < 96)
      adopt();
    else if (choice < 98)
      static_cast<void>(shared_.allocator.memory_stats());
    else if (choice < 99)
      static_cast<void>(shared_.allocator.snapshot());
    else
      shared_.allocator.empty_cache();
  }

  void acquire() {
    const std::size_t bytes = random_() % 4 == 0 ? 1 + random_() % (3 * kMega) : 1 + random_() % 20000;
    try {
      void* pointer = shared_.allocator.allocate(bytes, shared_.streams[static_cast<std::size_t>(number_)]);
      const Owned block{static_cast<unsigned char*>(pointer), bytes, static_cast<unsigned char>(random_())};
      mark(block);
      owned_.push_back(block);
    } catch (const OutOfMemoryError&) {
      ++shared_.refused;
    }
  }

  Owned take_one() {
    std::swap(owned_[random_() % owned_.size()], owned_.back());
    const Owned block = owned_.back();
    owned_.pop_back();
    return block;
  }

  void release() {
    const Owned block = take_one();
    verify(block, shared_);
    StreamHandle user = shared_.streams[random_() % kThreads];
    if (random_() % 3 == 0) shared_.allocator.record_stream(block.pointer, user);
    if (random_() % 5 == 0)
      shared_.allocator.deallocate(block.pointer, user);
    else
      shared_.allocator.deallocate(block.pointer);
  }

  void adopt() {
    Owned block{};
    if (!shared_.exchange.take(&block)) return;
    verify(block, shared_);
    owned_.push_back(block);
  }

  Shared& shared_;
  int number_;
  std::mt19937 random_;
  std::vector<Owned> owned_;
};

void run_workers(Shared& shared, long operations) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&shared, i, operations] { Worker(shared, i).run(operations); });
  for (std::thread& thread : threads) thread.join();
}

// What is on its way is freed; no block had two owners, and the heap is as it says.
void expect_intact(Shared& shared) {
  Owned rest{};
  while (shared.exchange.take(&rest)) shared.allocator.deallocate(rest.pointer);
  EXPECT_EQ(shared.overlaps, 0) << "two owners wrote to the same block";
  EXPECT_NO_THROW(shared.allocator.check());
}

void run_stress(std::size_t capacity, const char* options, long operations) {
  Shared shared(capacity, options);
  run_workers(shared, operations);
  expect_intact(shared);
  shared.allocator.empty_cache();
  const MemoryStats stats = shared.allocator.memory_stats();
  EXPECT_EQ(stats.allocated_bytes.all.current, 0);
  EXPECT_EQ(stats.active.all.current, 0);
  EXPECT_EQ(stats.reserved_bytes.all.current, 0);
  EXPECT_EQ(stats.num_ooms, shared.refused);
  EXPECT_EQ(shared.driver.used_bytes(), 0U);
}

TEST(Stress, ThreadsShareOneHeap) { run_stress(2048 * kMega, "", scaled(150000)); }

TEST(Stress, ThreadsOnAFullDeviceFlushAndFail) { run_stress(96 * kMega, "oom_dump:off", scaled(60000)); }

TEST(Stress, ThreadsWithoutACache) { run_stress(1024 * kMega, "policy:direct,oom_dump:off", scaled(60000)); }

TEST(Stress, ThreadsShareExpandableSegments) { run_stress(2048 * kMega, "expandable_segments:True", scaled(100000)); }

TEST(Stress, ThreadsOnAFullDeviceMapAndUnmap) {
  run_stress(96 * kMega, "oom_dump:off,expandable_segments:True", scaled(40000));
}

TEST(Stress, ThreadsShareADriversPool) { run_stress(1024 * kMega, "policy:async,oom_dump:off", scaled(60000)); }
TEST(Stress, ThreadsSharePagedMemory) { run_stress(2048 * kMega, "policy:paged", scaled(100000)); }

// Of the host's own time: what goes back, and when, is not said.
TEST(Stress, ThreadsSharePagedMemoryThatDecays) {
  run_stress(512 * kMega, "oom_dump:off,policy:paged,decay_ms:1", scaled(60000));
}

TEST(Stress, ThreadsOnAFullDeviceGatherAndGiveBack) {
  run_stress(96 * kMega, "oom_dump:off,policy:paged", scaled(40000));
}

// What a thread finds without a lock another one is making: streams, and where their blocks lie. Of more streams all
// the heap's locks would be more than ThreadSanitizer has room for: 64.
void streams_come(const char* options) {
  Shared shared(2048 * kMega, options);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      std::mt19937 random(static_cast<std::uint32_t>(i));
      for (int round = 0; round < 12; ++round) {
        const StreamHandle stream = shared.driver.create_stream();
        for (int block = 0; block < 4; ++block) {
          const std::size_t bytes = 1 + random() % (block == 0 ? 3 * kMega : 20000);
          void* const pointer = shared.allocator.allocate(bytes, stream);
          const Owned owned{static_cast<unsigned char*>(pointer), bytes, static_cast<unsigned char>(random())};
          mark(owned);
          shared.exchange.put(owned);
          Owned another{};
          if (!shared.exchange.take(&another)) continue;
          verify(another, shared);
          shared.allocator.deallocate(another.pointer);
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  expect_intact(shared);
  EXPECT_EQ(shared.allocator.memory_stats().active.all.current, 0);
}

TEST(Stress, StreamsComeMeanwhile) {
  for (long heap = 0; heap < scaled(100); ++heap) streams_come("");
}

TEST(Stress, StreamsComeMeanwhileInPages) {
  for (long heap = 0; heap < scaled(100); ++heap) streams_come("policy:paged");
}

// One goes into a pool and out of it, and asks on the streams from which the others are served.
void threads_beside_a_pool(const char* options) {
  Shared shared(2048 * kMega, options);
  {
    const MemPool pool(shared.allocator);
    std::atomic<bool> done{false};
    std::thread guest([&] {
      for (int i = 0; !done; ++i) {
        const MemPoolGuard guard(pool);
        Worker(shared, i % kThreads).run(50);
      }
    });
    run_workers(shared, scaled(40000));
    done = true;
    guest.join();
  }
  expect_intact(shared);
  shared.allocator.empty_cache();
  EXPECT_EQ(shared.allocator.memory_stats().active.all.current, 0);
  EXPECT_EQ(shared.driver.used_bytes(), 0U);
}

TEST(Stress, ThreadsBesideAPool) { threads_beside_a_pool(""); }
TEST(Stress, ThreadsBesideAPoolOfPages) { threads_beside_a_pool("policy:paged"); }

// Both kinds of segments in the same pools.
TEST(Stress, ExpandableSegmentsAreTurnedOnAndOffMeanwhile) {
  Shared shared(512 * kMega, "oom_dump:off");
  std::atomic<bool> done{false};
  std::thread changer([&] {
    for (std::size_t i = 0; !done; ++i) {
      shared.allocator.set_options(i % 2 == 0 ? "expandable_segments:True" : "expandable_segments:False");
      shared.allocator.trim(kMega * (i % 256));
      std::this_thread::yield();
    }
  });
  run_workers(shared, scaled(40000));
  done = true;
  changer.join();
  expect_intact(shared);
  shared.allocator.empty_cache();
  EXPECT_EQ(shared.driver.used_bytes(), 0U);
}

TEST(Stress, OptionsAndLimitsChangeMeanwhile) {
  Shared shared(1024 * kMega, "oom_dump:off");
  std::atomic<bool> done{false};
  std::thread changer([&] {
    const char* const texts[] = {"oom_dump:off", "oom_dump:off,max_split_size_mb:32",
                                 "oom_dump:off,garbage_collection_threshold:0.5",
                                 "oom_dump:off,roundup_power2_divisions:4"};
    for (std::size_t i = 0; !done; ++i) {
      shared.allocator.set_options(texts[i % 4]);
      shared.allocator.set_memory_fraction(i % 2 == 0 ? 0.5 : 1.0);
      shared.allocator.reset_peak_memory_stats();
      std::this_thread::yield();
    }
  });
  run_workers(shared, scaled(60000));
  done = true;
  changer.join();
  expect_intact(shared);
  shared.allocator.empty_cache();
  EXPECT_EQ(shared.driver.used_bytes(), 0U);
}

}  // namespace
}  // namespace cistern
