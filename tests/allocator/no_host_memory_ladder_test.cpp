// When the driver refuses and the host has no memory either, what is cached and what is pending still
// goes back: each rung of the ladder gives what it gives with memory.

#include <cistern/allocator.h>
#include <cistern/mem_pool.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/stream_access.h"
#include "tests/allocator/refusing_driver.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

// Without host memory from here to the end of the scope.
class NoHostMemory {
 public:
  NoHostMemory() { testing_host::is_gone = true; }
  ~NoHostMemory() { testing_host::is_gone = false; }
  NoHostMemory(const NoHostMemory&) = delete;
  NoHostMemory& operator=(const NoHostMemory&) = delete;
};

// A heap whose host memory goes with the driver's first refusal of a request, and comes back after it.
struct World {
  explicit World(const std::string& options, std::size_t capacity = 128 * kMega)
      : driver(capacity),
        allocator({.driver = &driver.api(),
                   .options =
                       AllocatorOptions::parse("oom_dump:off," + options, AllocatorOptions::parse("policy:classic"))}) {
  }

  // nullptr if there is none.
  void* take(std::size_t bytes, StreamHandle stream = nullptr) {
    void* block = nullptr;
    try {
      block = allocator.allocate(bytes, stream);
    } catch (const OutOfMemoryError&) {
    }
    testing_host::is_gone = false;
    return block;
  }

  RefusingDriver driver;
  CachingAllocator allocator;
};

TEST(NoHostMemoryLadder, IsClimbedToItsEnd) {
  World world("");
  const StreamHandle side = world.driver.driver.create_stream();
  void* cached = world.take(40 * kMega);
  void* awaited = world.take(40 * kMega);
  world.allocator.deallocate(cached);
  world.allocator.deallocate(awaited, side);
  world.driver.armed = true;
  EXPECT_NE(world.take(100 * kMega), nullptr);
  EXPECT_EQ(world.allocator.memory_stats().num_alloc_retries, 1);
  EXPECT_NO_THROW(world.allocator.check());
}

// A new segment would need the metadata of one, of which there may be none at hand: a hit is served even so,
// whatever the number of segments.
TEST(NoHostMemoryLadder, AHitAsksForNothing) {
  World world("", 4096 * kMega);
  testing_host::refused_requests = 0;
  for (int segments = 1; segments <= 200; ++segments) {
    void* cached = world.take(12 * kMega);
    ASSERT_NE(cached, nullptr);
    world.allocator.deallocate(cached);
    const NoHostMemory none;
    EXPECT_EQ(world.take(12 * kMega), cached) << segments << " segments";
  }
  EXPECT_EQ(testing_host::refused_requests, 0);
  EXPECT_EQ(world.allocator.memory_stats().segment.all.current, 200);
}

// Free pages lie before, between and behind live ones: cuts of every kind.
TEST(NoHostMemoryLadder, PagesAreCutOutOfExpandableSegments) {
  World world("expandable_segments:True");
  void* first = world.take(30 * kMega);
  void* middle = world.take(50 * kMega);
  static_cast<void>(world.take(10 * kMega));
  void* last = world.take(30 * kMega);
  EXPECT_EQ(world.allocator.memory_stats().reserved_bytes.all.current, 120 * std::int64_t{kMega});
  world.allocator.deallocate(middle);
  world.allocator.deallocate(last);
  world.driver.armed = true;
  EXPECT_NE(world.take(52 * kMega), nullptr);
  EXPECT_NO_THROW(world.allocator.check());
  world.allocator.deallocate(first);
  EXPECT_NO_THROW(world.allocator.empty_cache());
}

// The second of two gaps lies where no entries tell yet whose pages are; the driver refuses its memory.
TEST(NoHostMemoryLadder, AnExpandableSegmentGrowsByAGigabyte) {
  World world("expandable_segments:True", 4096 * kMega);
  const StreamHandle other = world.driver.driver.create_stream();
  void* const first = world.take(700 * kMega);
  void* const second = world.take(20 * kMega);
  world.allocator.deallocate(first);
  world.allocator.empty_cache();
  world.allocator.deallocate(second);
  world.allocator.deallocate(world.take(2400 * kMega, other));
  world.driver.armed = true;
  void* const block = world.take(1900 * kMega);
  EXPECT_EQ(block, first);
  EXPECT_EQ(world.allocator.memory_stats().num_alloc_retries, 1);
  world.allocator.deallocate(block);
  EXPECT_NO_THROW(world.allocator.check());
}

// What is left over when blocks become one is the stream's own, which was woken.
TEST(NoHostMemoryLadder, PagesAreCutOutWithWhatAStreamHasToSpare) {
  World world("expandable_segments:True", 512 * kMega);
  // Its map has room for more blocks than there will be.
  std::vector<void*> blocks;
  for (int i = 0; i < 600; ++i) blocks.push_back(world.take(512));
  for (void* const block : blocks) world.allocator.deallocate(block);
  blocks.clear();
  for (int i = 0; i < 41; ++i) blocks.push_back(world.take(kMega));
  const auto reserved = [&] { return world.allocator.memory_stats().reserved_bytes.all.current; };
  const std::int64_t before = reserved();
  {
    const NoHostMemory gone;
    try {
      for (;;) static_cast<void>(world.allocator.allocate(512));
    } catch (const std::bad_alloc&) {
    }
    for (std::size_t i = 0; i < blocks.size(); ++i)
      if (i % 5 != 0) world.allocator.deallocate(blocks[i]);
    world.allocator.empty_cache();
  }
  EXPECT_EQ(before - reserved(), 12 * std::int64_t{2 * kMega}) << "of gaps of 4 MiB, each other one begins with a page";
  EXPECT_NO_THROW(world.allocator.check());
}

// Whatever a stream's first request had no host memory for, those after it are served.
TEST(NoHostMemoryLadder, ARangeThatHostMemoryWasMissingForServesLater) {
  for (int served = 0; served < 1000; ++served) {
    World world("expandable_segments:True", 4096 * kMega);  // no two ranges have entries in common
    const StreamHandle stream = world.driver.driver.create_stream();
    const StreamHandle heir = world.driver.driver.create_stream();
    static_cast<void>(world.take(kKibi, heir));
    const auto pairs_of = [&](StreamHandle of) {
      for (int i = 0; i < 5; ++i) {
        void* const block = world.take(3 * kMega, of);
        ASSERT_NE(block, nullptr);
        world.allocator.deallocate(block);
        EXPECT_NO_THROW(world.allocator.check());
      }
    };
    testing_host::refused_requests = 0;
    testing_host::served_requests_left = served;
    void* block = nullptr;
    try {
      const NoHostMemory gone;
      block = world.allocator.allocate(3 * kMega, stream);
    } catch (const std::bad_alloc&) {
    }
    testing_host::served_requests_left = 0;
    const bool was_refused = testing_host::refused_requests != 0;
    if (block != nullptr) world.allocator.deallocate(block);
    pairs_of(stream);
    world.allocator.release_stream(stream);
    pairs_of(heir);
    EXPECT_EQ(world.allocator.memory_stats().allocation.all.current, 1);
    if (!was_refused) return;
  }
  FAIL() << "host memory is refused again and again";
}

TEST(NoHostMemoryLadder, ASmallHeapsPagesAreCutInAsManyPiecesAsThereAre) {
  World world("expandable_segments:True", 512 * kMega);
  std::vector<void*> blocks;
  for (int i = 0; i < 8192; ++i) blocks.push_back(world.take(64 * 1024));
  // A block in the middle of every other page stays.
  for (std::size_t i = 0; i < blocks.size(); ++i)
    if (i % 64 != 16) world.allocator.deallocate(blocks[i]);
  EXPECT_EQ(world.allocator.memory_stats().reserved_bytes.all.current, 512 * std::int64_t{kMega});
  {
    const NoHostMemory gone;
    world.allocator.empty_cache();
  }
  EXPECT_EQ(world.allocator.memory_stats().reserved_bytes.all.current, 256 * std::int64_t{kMega});
  EXPECT_NO_THROW(world.allocator.check());
}

TEST(NoHostMemoryLadder, GarbageIsCollected) {
  World world("garbage_collection_threshold:0.5,per_process_memory_fraction:0.9");
  world.allocator.deallocate(world.take(30 * kMega));
  world.allocator.deallocate(world.take(60 * kMega));
  {
    const NoHostMemory gone;
    static_cast<void>(world.allocator.allocate(61 * kMega));
  }
  const MemoryStats stats = world.allocator.memory_stats();
  EXPECT_EQ(stats.num_device_free, 2) << "of an average age, and then the rest, until enough is gone";
  EXPECT_EQ(stats.num_alloc_retries, 0);
}

// Blocks of all kinds: cut out of the middle, side by side, gathered from apart; some are used by another stream.
void free_paged_memory(World& world, bool is_used_elsewhere) {
  const StreamHandle side = world.driver.driver.create_stream();
  std::mt19937_64 random(20261122);
  std::vector<void*> blocks;
  testing_host::refused_requests = 0;
  for (int round = 0; round < 40; ++round) {
    while (blocks.size() < 60) {
      void* block = world.take(1 + random() % (blocks.size() % 5 == 0 ? 9 * kMega : kMega / 2));
      ASSERT_NE(block, nullptr);
      blocks.push_back(block);
      if (is_used_elsewhere && random() % 8 == 0) world.allocator.record_stream(block, side);
    }
    const NoHostMemory none;
    while (blocks.size() > 20) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      world.allocator.deallocate(blocks.back());
      blocks.pop_back();
    }
  }
  world.driver.driver.run_until_idle();
  EXPECT_NO_THROW(world.allocator.check());
  for (void* block : blocks) world.allocator.deallocate(block);
  world.allocator.empty_cache();
  EXPECT_EQ(world.driver.driver.used_bytes(), 0U);
}

TEST(NoHostMemoryLadder, AFreeOfPagedMemoryAsksForNothing) {
  World world("policy:paged", 512 * kMega);
  free_paged_memory(world, false);
  EXPECT_EQ(testing_host::refused_requests, 0);
}

TEST(NoHostMemoryLadder, PagedMemoryThatOthersUseIsFreedInTheEnd) {
  World world("policy:paged", 512 * kMega);
  free_paged_memory(world, true);
}

TEST(NoHostMemoryLadder, OversizeSegmentsAreReleased) {
  World world("max_split_size_mb:25");
  void* small = world.take(30 * kMega);
  void* large = world.take(40 * kMega);
  void* larger = world.take(45 * kMega);
  for (void* block : {small, large, larger}) world.allocator.deallocate(block);
  world.driver.armed = true;
  EXPECT_NE(world.take(80 * kMega), nullptr);
  const MemoryStats stats = world.allocator.memory_stats();
  EXPECT_EQ(stats.num_device_free, 2) << "the two largest, which suffice";
  EXPECT_EQ(stats.num_alloc_retries, 0);
}

TEST(NoHostMemoryLadder, TrimAndEmptyCacheGiveBack) {
  World world("");
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < 4; ++i) blocks.push_back(world.take((11 + i) * kMega));
  for (void* block : blocks) world.allocator.deallocate(block);
  std::size_t trimmed = 0;
  {
    const NoHostMemory gone;
    trimmed = world.allocator.trim(30 * kMega);
  }
  EXPECT_EQ(trimmed, 28 * kMega) << "the two largest";
  {
    const NoHostMemory gone;
    world.allocator.empty_cache();
  }
  EXPECT_EQ(world.allocator.memory_stats().reserved_bytes.all.current, 0);
}

// What ends with a use may free memory itself, so it ends without the lock: with host memory or without.
TEST(NoHostMemoryLadder, AnOwnerThatFreesMemoryWhenItEndsDoesNotDeadlock) {
  RefusingDriver driver;
  CachingAllocator allocator(
      {.driver = &driver.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:classic")});
  void* first = allocator.allocate(kMega);
  void* second = allocator.allocate(kMega);
  // An event that is there to be used again.
  void* before = allocator.allocate(kMega);
  allocator.record_stream(before, driver.driver.create_stream());
  allocator.deallocate(before);
  allocator.deallocate(allocator.allocate(kMega));
  {
    std::shared_ptr<void> owner(second, [&allocator](void* pointer) { allocator.deallocate(pointer); });
    allocator.record_stream(first, StreamAccess::wrap(driver.api(), {driver.driver.create_stream(), 77}, 0, owner));
  }
  {
    const NoHostMemory gone;
    allocator.deallocate(first);
  }
  EXPECT_EQ(allocator.memory_stats().allocation.all.current, 0);
  EXPECT_NO_THROW(allocator.check());
}

TEST(NoHostMemoryLadder, APoolsOwnerThatFreesMemoryWhenItEndsDoesNotDeadlock) {
  RefusingDriver driver;
  CachingAllocator allocator(
      {.driver = &driver.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:classic")});
  void* held = allocator.allocate(kMega);
  {
    std::shared_ptr<void> owner(held, [&allocator](void* pointer) { allocator.deallocate(pointer); });
    std::optional<MemPool> pool(std::in_place, allocator, MemPoolOptions{.owner = std::move(owner)});
    void* inside = nullptr;
    {
      const MemPoolGuard guard(*pool);
      inside = allocator.allocate(kMega);
    }
    pool.reset();
    const NoHostMemory gone;
    allocator.deallocate(inside);
  }
  EXPECT_EQ(allocator.memory_stats().allocation.all.current, 0);
  EXPECT_NO_THROW(allocator.check());
}

// A driver that refuses to wait leaves all that is not known to be done where it was.
TEST(NoHostMemoryLadder, PendingFreesThatCannotBeAwaitedStayPending) {
  World world("");
  const StreamHandle one = world.driver.driver.create_stream();
  const StreamHandle other = world.driver.driver.create_stream();
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(world.take(12 * kMega));
  world.driver.driver.occupy(one, 1ms);
  world.driver.driver.occupy(other, 1ms);
  for (std::size_t i = 0; i < blocks.size(); ++i) world.allocator.deallocate(blocks[i], i % 2 == 0 ? one : other);
  world.driver.driver.fail_call("cuEventSynchronize", 3, CUDA_ERROR_LAUNCH_FAILED);
  {
    const NoHostMemory gone;
    EXPECT_ANY_THROW(world.allocator.empty_cache());  // perhaps for want of memory for the text
  }
  EXPECT_NO_THROW(world.allocator.check());
  EXPECT_EQ(world.allocator.memory_stats().active.all.current, 4);
  world.allocator.empty_cache();
  EXPECT_EQ(world.allocator.memory_stats().reserved_bytes.all.current, 0);
}

// The table of live blocks cannot grow, and serves all the same.
TEST(NoHostMemoryLadder, FreeMemoryServesMoreBlocksThanEverLivedBefore) {
  World world("");
  static_cast<void>(world.take(512));
  {
    const NoHostMemory gone;
    for (int i = 0; i < 80; ++i) static_cast<void>(world.allocator.allocate(512));
  }
  EXPECT_EQ(world.allocator.memory_stats().allocation.all.current, 81);
  EXPECT_NO_THROW(world.allocator.check());
}

// One random program in two worlds: in one of them each refusal of the driver takes the host's memory
// until the request is over.
class LadderPrograms : public ::testing::TestWithParam<const char*> {};

class Program {
 public:
  Program(World& world, unsigned seed) : world_(world), random_(seed) {
    for (StreamHandle& stream : streams_) stream = world.driver.driver.create_stream();
  }
  // Whether a request was served, and where things stand.
  std::pair<bool, std::int64_t> step() {
    const unsigned kind = random_() % 16;
    bool served = true;
    if (kind < 8 || live_.empty()) {
      const std::size_t sizes[] = {700, 60 * 1024, 3 * kMega / 2, 7 * kMega, 19 * kMega, 33 * kMega};
      const std::size_t bytes = sizes[random_() % 6] + random_() % 4096;
      void* block = world_.take(bytes, streams_[random_() % 2]);
      served = block != nullptr;
      if (served) live_.push_back(block);
    } else if (kind < 15) {
      const std::size_t which = random_() % live_.size();
      void* block = std::exchange(live_[which], live_.back());
      live_.pop_back();
      if (random_() % 3 == 0)
        world_.allocator.deallocate(block, streams_[2]);
      else
        world_.allocator.deallocate(block);
    } else {
      world_.driver.driver.occupy(streams_[2], 1ms);
    }
    return {served, world_.allocator.memory_stats().reserved_bytes.all.current};
  }

 private:
  World& world_;
  std::mt19937 random_;
  StreamHandle streams_[3] = {};
  std::vector<void*> live_;
};

TEST_P(LadderPrograms, GoTheSameWithoutHostMemory) {
  int refused = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    World with(GetParam());
    World without(GetParam());
    without.driver.armed = true;
    Program program_with(with, seed);
    Program program_without(without, seed);
    testing_host::refused_requests = 0;
    for (int i = 0; i < 300; ++i)
      ASSERT_EQ(program_with.step(), program_without.step()) << "seed " << seed << ", step " << i;
    EXPECT_EQ(with.allocator.memory_stats(), without.allocator.memory_stats()) << "seed " << seed;
    EXPECT_NO_THROW(without.allocator.check()) << "seed " << seed;
    refused += testing_host::refused_requests;
  }
  EXPECT_GT(refused, 0) << "nothing asked for host memory: it was not gone";
}

INSTANTIATE_TEST_SUITE_P(Policies, LadderPrograms,
                         ::testing::Values("", "expandable_segments:True", "max_split_size_mb:25",
                                           "expandable_segments:True,pytorch_rules:2.4", "research_after_flush:True"));

}  // namespace
}  // namespace cistern
