// Steps that come again are followed, and nobody can tell: streams that serve themselves beside streams whose every
// step is looked at, and so carried out.
#include <cistern/allocator.h>
#include <cistern/scope.h>
#include <cistern/simulated.h>
#include <cistern/snapshot.h>

#include <gtest/gtest.h>
#include <malloc.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/byte_units.h"
#include "tests/loop_program.h"
#include "tests/property.h"

namespace cistern {
namespace {

// An allocator over a driver of its own.
class Twin {
 public:
  explicit Twin(Policy policy, bool is_looked_at)
      : is_looked_at_(is_looked_at),
        allocator_(
            {.driver = &driver_.api(),
             .options = AllocatorOptions::parse(std::string("stream_hand_over:done,policy:") + to_string(policy))}) {
    EXPECT_EQ(driver_.api().init(0), CUDA_SUCCESS);
    CUcontext context = nullptr;
    EXPECT_EQ(driver_.api().primary_ctx_retain(&context, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver_.api().ctx_set_current(context), CUDA_SUCCESS);
    EXPECT_EQ(driver_.api().stream_create_with_priority(&other_, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    HistoryOptions history = HistoryOptions::always_on();
    history.max_entries = 4096;
    allocator_.record_history(history);
  }

  void* allocate(std::uint64_t bytes) {
    settle();
    return allocator_.allocate(bytes);
  }
  void free(void* block) {
    settle();
    allocator_.deallocate(block);
  }
  void free_elsewhere(void* block) {
    settle();
    std::thread([&] { allocator_.deallocate(block); }).join();
  }
  CachingAllocator& allocator() { return allocator_; }
  CUstream other() const { return other_; }
  // Who looks has the heap's lock, and finds all carried out.
  void settle() {
    if (is_looked_at_) static_cast<void>(allocator_.memory_stats());
  }

 private:
  bool is_looked_at_;
  SimulatedDriver driver_{{.capacity_bytes = std::size_t{4} << 30, .backing = Backing::none}};
  CUstream other_ = nullptr;
  CachingAllocator allocator_;
};

// The same program for one that is followed and one that is not.
class TwinHeaps {
 public:
  explicit TwinHeaps(Policy policy, std::uint64_t seed)
      : followed_(policy, false), plain_(policy, true), random_(seed) {}

  struct Block {
    void* followed = nullptr;
    void* plain = nullptr;
  };
  Block allocate(std::uint64_t bytes) {
    const Block block{followed_.allocate(37 * bytes), plain_.allocate(37 * bytes)};
    if (first_.followed == nullptr) first_ = block;
    EXPECT_EQ(offset(block.followed, first_.followed), offset(block.plain, first_.plain));
    return block;
  }
  void free(const Block& block) {
    followed_.free(block.followed);
    plain_.free(block.plain);
  }
  // Something that is no step of the stream's.
  void look(bool something_else_happens) {
    if (something_else_happens) return disturb();
    compare();
  }
  void compare() {
    EXPECT_EQ(followed_.allocator().memory_stats(), plain_.allocator().memory_stats());
    EXPECT_EQ(told(followed_), told(plain_));
    EXPECT_NO_THROW(followed_.allocator().check());
  }

 private:
  // What the history tells, but for times and the addresses of each.
  static std::vector<std::pair<TraceAction, std::int64_t>> told(Twin& twin) {
    std::vector<std::pair<TraceAction, std::int64_t>> all;
    const Snapshot snapshot = twin.allocator().snapshot();
    for (const TraceEntry& entry : snapshot.device_traces.at(0)) all.emplace_back(entry.action, entry.size);
    return all;
  }
  static std::int64_t offset(void* block, void* first) { return static_cast<char*>(block) - static_cast<char*>(first); }
  void disturb() {
    const std::uint64_t kind = random_() % 6;
    const std::uint64_t bytes = kMega * (1 + random_() % 3);
    for (Twin* twin : {&followed_, &plain_}) {
      CachingAllocator& allocator = twin->allocator();
      void* const block = twin->allocate(bytes);
      switch (kind) {
        case 0:
          twin->free_elsewhere(block);
          continue;
        case 1:
          allocator.record_stream(block, twin->other());
          break;
        case 2:
          allocator.empty_cache();
          break;
        case 3:
          allocator.deallocate(allocator.allocate(bytes, twin->other()));
          break;
        case 4: {
          const TagScope tag("detour");
          allocator.deallocate(allocator.allocate(bytes));
          break;
        }
        default:
          EXPECT_GT(allocator.memory_stats().allocation.all.current, 0);
      }
      twin->free(block);
    }
  }

  Twin followed_, plain_;
  std::mt19937_64 random_;
  Block first_;
};

class RecurrenceOfStreamsTest : public ::testing::TestWithParam<Policy> {};

TEST_P(RecurrenceOfStreamsTest, StepsThatAreFollowedAreTheSteps) {
  for (long seed = 0; seed < scaled_programs(40, 4); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    TwinHeaps heaps(GetParam(), random());
    LoopProgram program(heaps, random());
    for (int part = 0; part < 3; ++part) {
      program.run(1 + static_cast<int>(random() % 120), static_cast<int>(random() % 3), random() % 4);
      heaps.compare();
      if (HasFailure()) return;
    }
  }
}

// What a stream has to spare goes to the heap when somebody looks: a round that needs more is not known then.
TEST_P(RecurrenceOfStreamsTest, ARoundOfManyBlocksIsLookedAt) {
  SimulatedDriver driver({.capacity_bytes = std::size_t{4} << 30, .backing = Backing::none});
  CachingAllocator allocator(
      {.driver = &driver.api(),
       .options = AllocatorOptions::parse(std::string("stream_hand_over:done,policy:") + to_string(GetParam()))});
  std::vector<void*> blocks;
  const auto allocate = [&](std::size_t count) {
    for (; count != 0; --count) blocks.push_back(allocator.allocate(1000 + blocks.size() % 7 * 512));
  };
  const auto free_all = [&] {
    for (void* block : blocks) allocator.deallocate(block);
    blocks.clear();
  };
  // Blocks are made 256 at a time: now few of them are left to others, now many.
  for (std::size_t count = 600; count <= 780; count += 20) {
    for (int look = 0; look < 10; ++look) {
      for (int round = 0; round < 12; ++round) {
        allocate(count);
        free_all();
      }
      EXPECT_EQ(allocator.memory_stats().allocation.all.current, 0);
      allocate(count - 10);
      EXPECT_EQ(allocator.memory_stats().allocation.all.current, count - 10);
      allocate(10);
      free_all();
    }
  }
}

// That a round came again shows in the host memory for its steps alone. One free in it stands until another request
// comes.
TEST(RecurrenceOfOneStreamTest, AFreeThatStandsIsAStepOfItsRound) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's allocator does not tell what is in use";
  SimulatedDriver driver({.capacity_bytes = std::size_t{4} << 30, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse("policy:classic")});
  HistoryOptions off;
  off.enabled = HistoryEnabled::none;
  allocator.record_history(off);
  const auto rounds = [&](int count) {
    for (; count != 0; --count) {
      void* const first = allocator.allocate(3 * kMega);
      void* const second = allocator.allocate(5 * kMega);
      allocator.deallocate(second);
      void* const third = allocator.allocate(7 * kMega);
      allocator.deallocate(third);
      allocator.deallocate(first);
    }
  };
  const auto in_use = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<std::ptrdiff_t>(info.uordblks + info.hblkhd);
  };
  rounds(40);  // less than is looked at
  const std::ptrdiff_t before = in_use();
  rounds(1000);
  EXPECT_GT(in_use() - before, 8 * 1024);
}

// Frees of another thread that come at once: with one of them the round may be known, and what comes with it that time
// only is none of it. Whenever that happens, the requests after them take the smallest blocks.
TEST(RecurrenceOfOneStreamTest, FreesThatComeAtOnceAreNotBesideTheRoundThatOneOfThemBegins) {
  constexpr std::size_t kBytes = 1920 * 1024;
  for (int passed = 1; passed <= 40; ++passed)
    for (int before = 0; before < 7; ++before) {
      SimulatedDriver driver({.capacity_bytes = std::size_t{4} << 30, .backing = Backing::none});
      CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse("policy:classic")});
      const auto free_elsewhere = [&](void* block) { std::thread([&] { allocator.deallocate(block); }).join(); };
      std::array<void*, 8> blocks{};  // some stay between those that come and go
      for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = allocator.allocate(kBytes + (8 - i) * 64 * 1024);
      const auto pass = [&] { allocator.deallocate(allocator.allocate(7 * kMega)); };
      for (int i = 0; i < before; ++i) pass();
      for (int i = 0; i < passed; ++i) {
        free_elsewhere(blocks[0]);
        free_elsewhere(blocks[2]);
        blocks[2] = allocator.allocate(kBytes);
        blocks[0] = allocator.allocate(kBytes);
        std::array<void*, 5> others{};
        for (void*& each : others) each = allocator.allocate(7 * kMega);
        for (void* each : others) allocator.deallocate(each);
      }
      for (const std::size_t i : {0, 2, 4, 6}) free_elsewhere(blocks[i]);
      for (const std::size_t i : {6, 4}) {
        void* const smallest = std::exchange(blocks[i], allocator.allocate(kBytes));
        ASSERT_EQ(blocks[i], smallest) << passed << " rounds after " << before << " passes";
      }
      for (const std::size_t i : {1, 3, 4, 5, 6, 7}) allocator.deallocate(blocks[i]);
      EXPECT_EQ(allocator.memory_stats().allocation.all.current, 0);
      ASSERT_NO_THROW(allocator.check());
    }
}

// What a free that stands gives back when somebody looks the stream has to spare again.
TEST_P(RecurrenceOfStreamsTest, WhoLooksAtAFreeThatStandsTakesNothing) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedDriver driver({.capacity_bytes = std::size_t{4} << 30, .backing = Backing::none});
    CachingAllocator allocator(
        {.driver = &driver.api(),
         .options = AllocatorOptions::parse(std::string("stream_hand_over:done,policy:") + to_string(GetParam()))});
    std::mt19937_64 random(seed);
    const std::size_t count = 20 + random() % 60;
    const std::size_t unit = GetParam() == Policy::paged ? 2 * kMega : 512;
    const auto pass = [&](std::size_t bytes) { allocator.deallocate(allocator.allocate(bytes)); };
    void* const kept = allocator.allocate(unit);
    for (std::uint64_t passes = random() % 1500; passes != 0; --passes) pass(unit * (1 + passes % 7));
    for (int round = 0; round < 400; ++round) {
      std::vector<void*> blocks;
      for (std::size_t i = 0; i < count; ++i) blocks.push_back(allocator.allocate(unit * (1 + i % 5)));
      if (round > 100 && random() % 2 == 0) static_cast<void>(allocator.memory_stats());
      const std::size_t looks_at = round > 100 && random() % 4 == 0 ? random() % count : count;
      for (; !blocks.empty(); blocks.pop_back()) {
        allocator.deallocate(blocks.back());
        for (std::uint64_t looks = blocks.size() == looks_at ? 1 + random() % 40 : 0; looks != 0; --looks) {
          pass(unit * 11);
          static_cast<void>(allocator.memory_stats());
        }
      }
    }
    allocator.deallocate(kept);
    EXPECT_NO_THROW(allocator.check());
  }
}

// Room below the peaks is shared: what one stream's returned blocks take is none that another's pending steps rely on.
TEST_P(RecurrenceOfStreamsTest, ThreadsThatAreFollowedFreeEachOthersBlocks) {
  SimulatedDriver driver({.capacity_bytes = std::size_t{16} << 30, .backing = Backing::none});
  CachingAllocator allocator(
      {.driver = &driver.api(),
       .options = AllocatorOptions::parse(std::string("stream_hand_over:done,policy:") + to_string(GetParam()))});
  constexpr std::size_t kThreads = 3;
  std::mutex mutex;
  std::vector<void*> given_away;
  const auto work = [&](StreamHandle stream, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (long part = 0; part < scaled(400); ++part) {
      std::vector<std::uint64_t> sizes(2 + random() % 30);
      for (std::uint64_t& size : sizes) size = 1 + random() % (random() % 3 != 0 ? 60000 : 3000000);
      for (std::uint64_t rounds = 20 + random() % 300; rounds != 0; --rounds) {
        std::vector<void*> blocks;
        for (const std::uint64_t size : sizes) {
          blocks.push_back(allocator.allocate(size, stream));
          if (blocks.size() % 3 == 0) allocator.deallocate(std::exchange(blocks[blocks.size() - 2], nullptr));
        }
        const std::uint64_t kind = random() % 200;
        if (kind == 0) static_cast<void>(allocator.memory_stats());
        if (kind == 1) allocator.check();
        if (kind >= 2 && kind < 12) {
          const std::lock_guard lock(mutex);
          given_away.push_back(std::exchange(blocks.back(), nullptr));
        }
        if (kind >= 12 && kind < 22) {
          const std::lock_guard lock(mutex);
          for (void* block : given_away) allocator.deallocate(block);
          given_away.clear();
        }
        for (void* block : blocks) allocator.deallocate(block);
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) threads.emplace_back(work, driver.create_stream(), i + 1);
  for (std::thread& thread : threads) thread.join();
  for (void* block : given_away) allocator.deallocate(block);
  EXPECT_EQ(allocator.memory_stats().allocation.all.current, 0);
  EXPECT_NO_THROW(allocator.check());
}

// Two states with the same live blocks, in one of which a block has a part of a larger request's place: what the log
// knows in one of them it does not in the other.
TEST(RecurrenceOfPagedMemoryTest, WhatWasFollowedIsCarriedOutInAStateThatTheLogHasOtherwise) {
  SimulatedDriver driver({.capacity_bytes = std::size_t{8} << 30, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse("policy:paged")});
  const auto pass = [&](std::size_t size) { allocator.deallocate(allocator.allocate(size * kMega)); };
  const auto alternate = [&](int times) {
    for (; times != 0; --times) pass(6);
  };
  // In a part of 40 MiB's place.
  const auto in_part = [&](int times, bool is_looked_at) {
    void* const block = allocator.allocate(38 * kMega);
    if (is_looked_at) static_cast<void>(allocator.memory_stats());
    alternate(times);
    pass(10);
    allocator.deallocate(block);
  };
  const auto beside = [&](int times) {
    void* const other = allocator.allocate(60 * kMega);
    void* const block = allocator.allocate(38 * kMega);
    allocator.deallocate(other);
    alternate(times);
    return block;
  };
  std::vector<void*> first;
  for (const std::size_t size : {40, 60, 6, 10}) first.push_back(allocator.allocate(size * kMega));
  for (void* block : first) allocator.deallocate(block);
  pass(40);
  for (int i = 0; i < 600; ++i) {
    in_part(2, false);
    allocator.deallocate(beside(2));
  }
  for (int i = 0; i < 3; ++i) in_part(40, true);
  for (const int times : {37, 38, 39, 40, 41}) {
    void* const block = beside(times);
    pass(10);
    EXPECT_EQ(allocator.memory_stats().allocation.all.current, 1);
    allocator.deallocate(block);
    EXPECT_NO_THROW(allocator.check());
  }
}

TEST(RecurrenceOfPagedMemoryTest, ARequestBeyondAllIsRefusedWhereStepsAreFollowed) {
  SimulatedDriver driver({.capacity_bytes = std::size_t{1} << 30, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse("oom_dump:off")});
  for (int i = 0; i < 2000; ++i) {
    void* const first = allocator.allocate(1000);
    allocator.deallocate(allocator.allocate(2000));
    EXPECT_ANY_THROW(i % 500 == 499 ? allocator.allocate(std::size_t{1} << 63 | 1000) : throw 1);
    allocator.deallocate(first);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, RecurrenceOfStreamsTest,
                         ::testing::Values(Policy::classic, Policy::expandable, Policy::paged),
                         [](const auto& policy) { return to_string(policy.param); });

}  // namespace
}  // namespace cistern
