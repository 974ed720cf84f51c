// MemPool: a private pool as an object, used by guards, from several threads, with its options.

#include <cistern/allocator.h>
#include <cistern/mem_pool.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/stream_access.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

class MemPoolTest : public ::testing::Test {
 protected:
  ~MemPoolTest() override { EXPECT_NO_THROW(allocator_.check()); }

  PoolId pool_of(void* pointer) const {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    for (const SegmentInfo& segment : allocator_.snapshot().segments)
      if (address >= segment.address && address < segment.address + static_cast<std::uint64_t>(segment.total_size))
        return {static_cast<std::uint64_t>(segment.segment_pool_id.first),
                static_cast<std::uint64_t>(segment.segment_pool_id.second)};
    return {~std::uint64_t{0}, 0};
  }

  SimulatedDriver driver_{{.devices = 2, .capacity_bytes = 256 * kMega, .backing = Backing::none}};
  CachingAllocator allocator_{
      {.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:classic")}};
  const StreamHandle other_ = driver_.create_stream();
};

TEST_F(MemPoolTest, AGuardRoutesItsThreadWhileItLives) {
  const MemPool pool(allocator_);
  EXPECT_EQ(pool.use_count(), 1U);
  {
    const MemPoolGuard guard(pool);
    EXPECT_EQ(pool.use_count(), 2U);
    EXPECT_EQ(pool_of(allocator_.allocate(1000)), pool.id());
    EXPECT_EQ(pool_of(allocator_.allocate(1000, other_)), pool.id()) << "whatever the stream";
    EXPECT_EQ(pool_of(allocator_.allocate(1000, nullptr, 1)), PoolId{}) << "the pool is of device 0";
    std::thread([&] { EXPECT_EQ(pool_of(allocator_.allocate(1000)), PoolId{}); }).join();
  }
  EXPECT_EQ(pool.use_count(), 1U);
  EXPECT_EQ(pool_of(allocator_.allocate(1000)), PoolId{});
}

TEST_F(MemPoolTest, GuardsNestAndTheInnermostWins) {
  const MemPool outer(allocator_);
  const MemPool inner(allocator_);
  const MemPoolGuard first(outer);
  {
    const MemPoolGuard second(inner);
    EXPECT_EQ(pool_of(allocator_.allocate(1000)), inner.id());
    {
      const MemPoolGuard third(outer);
      EXPECT_EQ(pool_of(allocator_.allocate(1000)), outer.id());
    }
    EXPECT_EQ(pool_of(allocator_.allocate(1000)), inner.id());
  }
  EXPECT_EQ(pool_of(allocator_.allocate(1000)), outer.id());
}

TEST_F(MemPoolTest, SeveralThreadsUseOnePoolAtOnce) {
  const MemPool pool(allocator_);
  const MemPool another(allocator_);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const MemPool& mine = i % 2 == 0 ? pool : another;
      for (int round = 0; round < 200; ++round) {
        const MemPoolGuard guard(mine);
        void* block = allocator_.allocate(1000);
        EXPECT_EQ(pool_of(block), mine.id());
        allocator_.deallocate(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.use_count(), 1U);
  EXPECT_EQ(pool.stats().allocation.all.allocated, 400);
}

TEST_F(MemPoolTest, APoolServesByItselfToo) {
  const MemPool pool(allocator_);
  const MemPool another(allocator_);
  const MemPoolGuard guard(another);
  void* block = pool.allocate(3 * kMega, other_);
  EXPECT_EQ(pool_of(block), pool.id()) << "whatever guards are in force";
  allocator_.deallocate(block);
  EXPECT_EQ(pool.allocate(3 * kMega, other_), block);
  EXPECT_EQ(pool.allocate(0), nullptr);
  EXPECT_THROW(static_cast<void>(pool.allocate(1000, driver_.create_stream(1))), InvalidArgument);
}

TEST_F(MemPoolTest, ItsFiguresAreItsOwn) {
  const MemPool pool(allocator_, {.name = "activations"});
  EXPECT_EQ(pool.name(), "activations");
  static_cast<void>(allocator_.allocate(5 * kMega));
  void* first = pool.allocate(3 * kMega);
  void* second = pool.allocate(1000);
  allocator_.deallocate(first);
  const MemoryStats stats = pool.stats();
  EXPECT_EQ(stats.allocation.all.current, 1);
  EXPECT_EQ(stats.allocated_bytes.all.peak, static_cast<std::int64_t>(3 * kMega + 1024));
  EXPECT_EQ(stats.allocated_bytes.large_pool.current, 0);
  EXPECT_EQ(stats.requested_bytes.all.current, 1000);
  EXPECT_EQ(stats.reserved_bytes.all.current, static_cast<std::int64_t>(22 * kMega));
  EXPECT_EQ(stats.segment.all.current, 2);
  pool.reset_peak_stats();
  EXPECT_EQ(pool.stats().allocated_bytes.all.peak, 1024);
  EXPECT_EQ(pool.snapshot().size(), 2U);
  EXPECT_EQ(pool.trim(), 20 * kMega);
  EXPECT_EQ(pool.stats().num_device_free, 1);
  allocator_.deallocate(second);
}

TEST_F(MemPoolTest, APoolWithoutBlocksGivesItsMemoryBackWhenItIsGone) {
  {
    const MemPool pool(allocator_);
    const MemPool copy = pool;  // NOLINT(performance-unnecessary-copy-initialization): the same pool
    EXPECT_EQ(copy, pool);
    allocator_.deallocate(pool.allocate(30 * kMega));
    EXPECT_EQ(pool.use_count(), 1U) << "copies are one pool";
    allocator_.empty_cache();
    EXPECT_EQ(driver_.used_bytes(), 30 * kMega) << "while it lives it keeps its cache";
  }
  EXPECT_EQ(driver_.used_bytes(), 0U);
}

TEST_F(MemPoolTest, APoolIsDeletedWithLiveBlocksSafely) {
  void* small = nullptr;
  void* large = nullptr;
  PoolId id;
  {
    const MemPool pool(allocator_);
    id = pool.id();
    small = pool.allocate(1000);
    large = pool.allocate(30 * kMega);
  }
  EXPECT_EQ(pool_of(small), id);
  EXPECT_EQ(driver_.used_bytes(), 32 * kMega);
  allocator_.deallocate(large);
  EXPECT_EQ(driver_.used_bytes(), 2 * kMega) << "each segment goes with its last block";
  EXPECT_NO_THROW(allocator_.check());
  allocator_.deallocate(small);
  EXPECT_EQ(driver_.used_bytes(), 0U);
  EXPECT_EQ(allocator_.pool_use_count(0, id), 0U);
  EXPECT_THROW(static_cast<void>(allocator_.snapshot(0, id)), InvalidArgument) << "it is gone";
}

TEST_F(MemPoolTest, ABlockThatAStreamStillUsesOutlivesThePoolToo) {
  {
    const MemPool pool(allocator_);
    void* block = pool.allocate(30 * kMega);
    driver_.occupy(other_, 1ms);
    allocator_.deallocate(block, other_);
  }
  EXPECT_EQ(driver_.used_bytes(), 30 * kMega);
  driver_.run_until_idle();
  static_cast<void>(allocator_.allocate(1000));
  EXPECT_EQ(driver_.used_bytes(), 2 * kMega) << "the next request notices that the use is over";
}

TEST_F(MemPoolTest, AGuardKeepsThePool) {
  std::optional<MemPool> pool(std::in_place, allocator_);
  const PoolId id = pool->id();
  std::optional<MemPoolGuard> guard(std::in_place, *pool);
  pool.reset();
  void* block = allocator_.allocate(30 * kMega);
  EXPECT_EQ(pool_of(block), id);
  allocator_.deallocate(block);
  guard.reset();
  EXPECT_EQ(driver_.used_bytes(), 0U);
}

TEST_F(MemPoolTest, TheOwnerLivesUntilTheLastBlockIsGone) {
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = owner;
  void* block = nullptr;
  {
    const MemPool pool(allocator_, {.owner = std::move(owner)});
    EXPECT_EQ(pool.owner(), watched.lock());
    block = pool.allocate(1000);
  }
  EXPECT_FALSE(watched.expired());
  allocator_.deallocate(block);
  EXPECT_TRUE(watched.expired());
}

// What an owner does when it ends is its own: it may come back to the allocator.
TEST_F(MemPoolTest, AnOwnerThatFreesMemoryWhenItEndsDoesNotDeadlock) {
  void* held = allocator_.allocate(1000);
  {
    const std::shared_ptr<void> owner(held, [this](void* pointer) { allocator_.deallocate(pointer); });
    const MemPool pool(allocator_, {.owner = owner});
  }
  EXPECT_EQ(allocator_.memory_stats().allocation.all.current, 0);
}

TEST_F(MemPoolTest, AParentInheritsWhatItsChildHasFree) {
  const MemPool parent(allocator_);
  void* live = nullptr;
  void* block = nullptr;
  {
    const MemPool child(allocator_, {.parent = &parent});
    EXPECT_EQ(child.parent(), parent);
    EXPECT_FALSE(parent.parent().has_value());
    block = child.allocate(30 * kMega);
    live = child.allocate(1000);
    allocator_.deallocate(block);
  }
  EXPECT_EQ(driver_.used_bytes(), 32 * kMega);
  EXPECT_EQ(pool_of(block), parent.id());
  EXPECT_EQ(parent.stats().reserved_bytes.all.current, static_cast<std::int64_t>(30 * kMega));
  EXPECT_EQ(parent.allocate(30 * kMega), block);
  allocator_.deallocate(live);
  EXPECT_EQ(pool_of(live), parent.id()) << "and what it frees later";
}

TEST_F(MemPoolTest, AParentLivesAsLongAsItsChild) {
  std::optional<MemPool> parent(std::in_place, allocator_);
  const MemPool child(allocator_, {.parent = &*parent});
  allocator_.deallocate(parent->allocate(30 * kMega));
  const PoolId id = parent->id();
  parent.reset();
  EXPECT_EQ(driver_.used_bytes(), 30 * kMega);
  EXPECT_EQ(child.parent()->id(), id);
}

TEST_F(MemPoolTest, AParentOfAnotherDeviceOrAllocatorIsRefused) {
  const MemPool parent(allocator_, {.device = 1});
  EXPECT_EQ(parent.device(), Device(1));
  EXPECT_THROW(MemPool(allocator_, {.device = 0, .parent = &parent}), InvalidArgument);
  CachingAllocator stranger({.driver = &driver_.api(), .options = AllocatorOptions::parse("policy:classic")});
  EXPECT_THROW(MemPool(stranger, {.device = 1, .parent = &parent}), InvalidArgument);
  EXPECT_THROW(MemPool(allocator_, {.device = 2}), InvalidArgument);
}

TEST_F(MemPoolTest, UseOnOomServesWhatTheDriverCannot) {
  const MemPool plain(allocator_);
  const MemPool spare(allocator_, {.use_on_oom = true});
  EXPECT_TRUE(spare.use_on_oom());
  allocator_.deallocate(plain.allocate(100 * kMega));
  void* cached = spare.allocate(100 * kMega);
  allocator_.deallocate(cached);
  void* served = allocator_.allocate(90 * kMega);
  EXPECT_EQ(served, cached);
  EXPECT_EQ(allocator_.memory_stats().num_alloc_retries, 0) << "before the cache is flushed";
  EXPECT_EQ(spare.stats().allocation.all.current, 1);
  allocator_.deallocate(served);
  EXPECT_EQ(spare.stats().allocation.all.current, 0) << "it goes back to its pool";
  EXPECT_THROW(static_cast<void>(allocator_.allocate(90 * kMega, other_)), OutOfMemoryError)
      << "a block serves its own stream only";
  EXPECT_THROW(static_cast<void>(plain.allocate(110 * kMega)), OutOfMemoryError)
      << "and requests of the default pool only";
}

TEST_F(MemPoolTest, NoSplitHandsOutWholeSegments) {
  const MemPool pool(allocator_, {.no_split = true});
  EXPECT_TRUE(pool.no_split());
  void* first = pool.allocate(1000);
  void* second = pool.allocate(1000);
  EXPECT_EQ(pool.stats().segment.all.current, 2);
  EXPECT_EQ(pool.stats().allocated_bytes.all.current, static_cast<std::int64_t>(4 * kMega));
  EXPECT_EQ(pool.stats().inactive_split.all.allocated, 0);
  allocator_.deallocate(first);
  EXPECT_EQ(pool.allocate(500000), first);
  allocator_.deallocate(second);
}

// Unlike a capture, a pool in use restricts nobody: the ladder is whole (pytorch#159674).
TEST_F(MemPoolTest, AGuardDoesNotKeepTheCacheFromBeingFlushed) {
  allocator_.deallocate(allocator_.allocate(200 * kMega));
  void* pending = allocator_.allocate(20 * kMega);
  driver_.occupy(other_, 1ms);
  allocator_.deallocate(pending, other_);
  const MemPool pool(allocator_);
  const MemPoolGuard guard(pool);
  EXPECT_NE(allocator_.allocate(240 * kMega), nullptr);
  EXPECT_EQ(allocator_.memory_stats().num_alloc_retries, 1);
}

TEST_F(MemPoolTest, APoolMayOutliveItsAllocator) {
  std::optional<CachingAllocator> allocator(std::in_place, CachingAllocatorOptions{.driver = &driver_.api()});
  const MemPool pool(*allocator, {.name = "late"});
  static_cast<void>(pool.allocate(1000));
  std::optional<MemPoolGuard> guard(std::in_place, pool);
  allocator.reset();
  EXPECT_EQ(driver_.used_bytes(), 0U);
  EXPECT_EQ(pool.name(), "late");
  EXPECT_THROW(static_cast<void>(pool.allocate(1000)), NotSupported);
  EXPECT_THROW(static_cast<void>(pool.stats()), NotSupported);
  guard.reset();
}

// Its free segments go by a call of the driver's, which is forbidden there.
TEST_F(MemPoolTest, APoolThatEndsInAHostFunctionGivesItsMemoryBackLater) {
  const Stream stream = StreamAccess::wrap(driver_.api(), {other_, 1}, 0);
  auto pool = std::make_unique<MemPool>(allocator_);
  allocator_.deallocate(pool->allocate(20 * kMega));
  stream.launch_host_func([&pool] { pool.reset(); });
  driver_.run_until_idle();
  EXPECT_EQ(pool, nullptr);
  EXPECT_EQ(driver_.calls_from_operations(), 0U);
  EXPECT_EQ(driver_.used_bytes(), 20 * kMega);
  const MemPool next(allocator_);
  EXPECT_EQ(driver_.used_bytes(), 0U);
}

// A kernel is no function of ours: the driver's refusal tells.
TEST_F(MemPoolTest, SoDoesOneThatEndsInAKernel) {
  auto pool = std::make_unique<MemPool>(allocator_);
  allocator_.deallocate(pool->allocate(20 * kMega));
  driver_.launch(other_, {}, {}, 1us, [&pool] { pool.reset(); });
  driver_.run_until_idle();
  EXPECT_EQ(pool, nullptr);
  EXPECT_EQ(driver_.used_bytes(), 20 * kMega);
  const MemPool next(allocator_);
  EXPECT_EQ(driver_.used_bytes(), 0U);
}

TEST_F(MemPoolTest, ACheckpointThatWasMovedFromIsTheSame) {
  const MemPool pool(allocator_);
  static_cast<void>(pool.allocate(1000));
  PoolCheckpoint checkpoint = allocator_.checkpoint_pool(0, pool.id());
  const PoolCheckpoint taken = std::move(checkpoint);
  EXPECT_EQ(checkpoint.pool(), pool.id());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(checkpoint.segments().size(), taken.segments().size());
}

TEST_F(MemPoolTest, MovedFromItIsNoPool) {
  MemPool pool(allocator_);
  const MemPool taken = std::move(pool);
  EXPECT_THROW(static_cast<void>(pool.allocate(1000)), InvalidArgument);  // NOLINT(bugprone-use-after-move)
  EXPECT_THROW(static_cast<void>(pool.stats()), InvalidArgument);
  EXPECT_THROW(MemPoolGuard{pool}, InvalidArgument);
  EXPECT_THROW(MemPool(allocator_, {.parent = &pool}), InvalidArgument);
  EXPECT_EQ(taken.use_count(), 1U);
}

}  // namespace
}  // namespace cistern
