// Each scenario is run with the driver failing call 1, 2, 3, … until it passes untouched.
// After every failure the heap's invariants hold, live blocks are as they were, and in the
// end nothing is left on the device.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

// What a scenario works with. Blocks are kept by name, so that a scenario that fails half way
// leaves what it has to the loop.
struct World {
  explicit World(const char* options)
      : driver({.capacity_bytes = 128 * kMega, .backing = Backing::none}),
        allocator(
            {.driver = &api, .options = AllocatorOptions::parse(options, AllocatorOptions::parse("policy:classic"))}),
        side(driver.create_stream()) {
    api.host_clock = {&now, [](void* self) { return *static_cast<std::int64_t*>(self); }};
  }

  void* take(std::size_t bytes, StreamHandle stream = nullptr, const MemPool* pool = nullptr) {
    void* pointer = pool == nullptr ? allocator.allocate(bytes, stream) : pool->allocate(bytes, stream);
    live.push_back(pointer);
    return pointer;
  }
  void give(void* pointer) {
    live.erase(std::find(live.begin(), live.end(), pointer));
    allocator.deallocate(pointer);
  }
  void end_pool(PoolId id) {
    allocator.end_allocate_to_pool(0, id);
    allocator.release_pool(0, id);
  }

  SimulatedDriver driver;
  DriverApi api = driver.api();
  std::int64_t now = 0;  // the host's time in nanoseconds
  CachingAllocator allocator;
  StreamHandle side;
  std::vector<void*> live;
};

struct Scenario {
  const char* name;
  const char* options;
  std::function<void(World&)> run;
};

void miss_and_hit(World& world) {
  world.give(world.take(3 * kMega));
  world.take(1000);
  world.take(3 * kMega);
}

void used_elsewhere(World& world) {
  void* block = world.take(2 * kMega);
  world.driver.occupy(world.side, 1ms);
  world.allocator.record_stream(block, world.side);
  world.give(block);
  world.take(2 * kMega);
  world.driver.run_until_idle(world.side);
  world.take(2 * kMega);
}

void flush_on_a_full_device(World& world) {
  world.give(world.take(50 * kMega));
  world.give(world.take(40 * kMega, world.side));
  void* block = world.take(12 * kMega);
  world.driver.occupy(world.side, 1ms);
  world.allocator.record_stream(block, world.side);
  world.give(block);
  world.take(100 * kMega);
}

void out_of_memory(World& world) {
  world.take(60 * kMega);
  try {
    world.take(100 * kMega);
    ADD_FAILURE() << "the device has no room for this";
  } catch (const OutOfMemoryError&) {
  }
}

void oversize_segments(World& world) {
  world.give(world.take(30 * kMega));
  world.give(world.take(36 * kMega));
  world.take(60 * kMega);
  world.take(50 * kMega);
}

void collecting_garbage(World& world) {
  for (std::size_t size = 12; size < 40; size += 4) world.give(world.take(size * kMega));
  world.take(41 * kMega);
}

void trimming(World& world) {
  world.give(world.take(30 * kMega));
  world.take(1000);
  world.allocator.trim(4 * kMega);
  world.allocator.empty_cache();
}

// What two streams had goes back, while they still work and when that is done.
void decaying(World& world) {
  world.take(1000);
  world.give(world.take(20 * kMega));
  world.driver.occupy(world.side, 1ms);
  world.give(world.take(30 * kMega, world.side));
  const auto go_on = [&world] {
    for (int i = 0; i < 1000; ++i) {
      world.now += 10000000;
      world.give(world.take(500));
    }
  };
  go_on();
  world.driver.run_until_idle(world.side);
  go_on();
  go_on();
  // Segments serve where addresses are refused, and stay.
  EXPECT_LE(world.allocator.memory_stats().reserved_bytes.all.current, 34 * std::int64_t{kMega});
  world.give(world.take(20 * kMega, world.side));
}

void without_cache(World& world) {
  void* block = world.take(5 * kMega);
  world.driver.occupy(world.side, 1ms);
  world.allocator.record_stream(block, world.side);
  world.give(block);
  world.take(700);
}

// As a graph's capture uses it, without the capture: begin, end, release, and the flush that ends it.
void private_pool(World& world) {
  const PoolId id{900, 0};
  world.allocator.begin_allocate_to_pool(0, id, PoolFilter::every_stream());
  try {
    world.give(world.take(3 * kMega));
    world.take(1000, world.side);
  } catch (const Error&) {
    world.end_pool(id);
    throw;
  }
  world.end_pool(id);
  world.allocator.empty_cache();
}

void mem_pools(World& world) {
  const MemPool parent(world.allocator);
  {
    const MemPool child(world.allocator, {.parent = &parent, .no_split = true});
    const MemPoolGuard guard(child);
    void* block = world.take(30 * kMega);
    world.take(500);
    world.driver.occupy(world.side, 1ms);
    world.allocator.record_stream(block, world.side);
    world.give(block);
  }
  world.driver.run_until_idle();
  world.take(700);
  world.take(30 * kMega, nullptr, &parent);
}

void overflow_pool(World& world) {
  const MemPool pool(world.allocator, {.use_on_oom = true});
  world.give(world.take(90 * kMega, nullptr, &pool));
  world.take(80 * kMega);
  static_cast<void>(pool.trim());
}

void restored_checkpoint(World& world) {
  const MemPool pool(world.allocator);
  void* kept = world.take(2 * kMega, nullptr, &pool);
  world.allocator.record_stream(kept, world.side);
  const PoolCheckpoint before = world.allocator.checkpoint_pool(0, pool.id());
  void* branch = world.take(kMega / 2, nullptr, &pool);
  world.driver.occupy(world.side, 1ms);
  world.allocator.record_stream(branch, world.side);
  const PoolRestored restored = world.allocator.restore_pool(0, before);
  for (void* freed : restored.freed) world.live.erase(std::find(world.live.begin(), world.live.end(), freed));
  world.live.insert(world.live.end(), restored.live.begin(), restored.live.end());
  world.take(kMega / 2, nullptr, &pool);
}

// Nothing that the driver refuses may reach the caller who destroys a stream.
void destroyed_stream(World& world) {
  const StreamHandle stream = world.driver.create_stream();
  world.give(world.take(30 * kMega, stream));
  void* block = world.take(12 * kMega, stream);
  world.driver.occupy(stream, 1ms);
  world.allocator.release_stream(stream);
  world.driver.destroy_stream(stream);
  world.take(30 * kMega, world.side);
  world.give(block);
  world.take(12 * kMega, world.side);
}

// Pages come and go in the middle of an address range: a request takes a free block and a gap.
void growing_over_a_gap(World& world) {
  void* first = world.take(30 * kMega);
  void* middle = world.take(30 * kMega);
  world.take(30 * kMega);
  world.give(middle);
  world.allocator.empty_cache();
  world.take(25 * kMega);
  world.give(first);
  world.allocator.trim(0);
  world.take(70 * kMega);
}

// Both kinds of segments in one pool.
void switched_policy(World& world) {
  world.give(world.take(30 * kMega));
  world.allocator.set_options("expandable_segments:False");
  world.give(world.take(30 * kMega));
  world.take(700);
  world.allocator.set_options("expandable_segments:True");
  world.take(25 * kMega);
  world.give(world.take(60 * kMega));
  world.take(90 * kMega);
}

// Handles that stay mapped where they were serve elsewhere, first of the stream's own, then of others that still work.
void gathered_from_streams(World& world) {
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(world.take(5 * kMega));
  for (int i = 0; i < 4; ++i) blocks.push_back(world.take(7 * kMega / 2, world.side));
  world.driver.occupy(world.side, 1ms);
  for (const std::size_t i : {0U, 2U, 3U, 5U, 6U, 8U}) world.give(blocks[i]);
  void* gathered = world.take(18 * kMega);
  void* mixed = world.take(9 * kMega, world.side);
  world.give(gathered);
  world.give(mixed);
  world.take(30 * kMega);
  world.allocator.trim(50 * kMega);
}

// A free of the side stream's that the other still uses goes to a third, before either is done.
void claimed(World& world) {
  const StreamHandle third = world.driver.create_stream();
  void* block = world.take(12 * kMega, world.side);
  world.driver.occupy(world.side, 1ms);
  world.driver.occupy(nullptr, 2ms);
  world.allocator.record_stream(block, nullptr);
  world.give(block);
  world.give(world.take(12 * kMega, third));
  world.take(10 * kMega, world.side);
}

const std::vector<Scenario> kScenarios = {
    {"MissAndHit", "oom_dump:off", miss_and_hit},
    {"UsedElsewhere", "oom_dump:off", used_elsewhere},
    {"FlushOnAFullDevice", "oom_dump:off", flush_on_a_full_device},
    {"FlushAndSearchAgain", "oom_dump:off,research_after_flush:True", flush_on_a_full_device},
    {"OutOfMemory", "oom_dump:off", out_of_memory},
    {"OversizeSegments", "oom_dump:off,max_split_size_mb:24", oversize_segments},
    {"CollectingGarbage", "oom_dump:off,garbage_collection_threshold:0.5,per_process_memory_fraction:0.9",
     collecting_garbage},
    {"Trimming", "oom_dump:off", trimming},
    {"WithoutCache", "oom_dump:off,policy:direct", without_cache},
    {"PrivatePool", "oom_dump:off", private_pool},
    {"PrivatePoolUnder24", "oom_dump:off,pytorch_rules:2.4", private_pool},
    {"MemPools", "oom_dump:off", mem_pools},
    {"OverflowPool", "oom_dump:off", overflow_pool},
    {"RestoredCheckpoint", "oom_dump:off", restored_checkpoint},
    {"DestroyedStream", "oom_dump:off", destroyed_stream},
    {"ExpandableMissAndHit", "oom_dump:off,expandable_segments:True", miss_and_hit},
    {"ExpandableUsedElsewhere", "oom_dump:off,expandable_segments:True", used_elsewhere},
    {"ExpandableFlushOnAFullDevice", "oom_dump:off,expandable_segments:True", flush_on_a_full_device},
    {"ExpandableOutOfMemory", "oom_dump:off,expandable_segments:True", out_of_memory},
    {"ExpandableOversizeBlocks", "oom_dump:off,expandable_segments:True,max_split_size_mb:24", oversize_segments},
    {"ExpandableGarbage",
     "oom_dump:off,expandable_segments:True,garbage_collection_threshold:0.5,per_process_memory_fraction:0.9",
     collecting_garbage},
    {"ExpandableTrimming", "oom_dump:off,expandable_segments:True", trimming},
    {"ExpandableGrowingOverAGap", "oom_dump:off,expandable_segments:True", growing_over_a_gap},
    {"ExpandableSwitched", "oom_dump:off,expandable_segments:True", switched_policy},
    {"ExpandablePrivatePool", "oom_dump:off,expandable_segments:True", private_pool},
    {"ExpandablePrivatePoolUnder24", "oom_dump:off,expandable_segments:True,pytorch_rules:2.4", private_pool},
    {"ExpandableMemPools", "oom_dump:off,expandable_segments:True", mem_pools},
    {"ExpandableOverflowPool", "oom_dump:off,expandable_segments:True", overflow_pool},
    {"ExpandableRestoredCheckpoint", "oom_dump:off,expandable_segments:True", restored_checkpoint},
    {"ExpandableDestroyedStream", "oom_dump:off,expandable_segments:True", destroyed_stream},
    {"AsyncMissAndHit", "oom_dump:off,policy:async", miss_and_hit},
    {"AsyncUsedElsewhere", "oom_dump:off,policy:async", used_elsewhere},
    {"AsyncFlushOnAFullDevice", "oom_dump:off,policy:async", flush_on_a_full_device},
    {"AsyncOutOfMemory", "oom_dump:off,policy:async", out_of_memory},
    {"AsyncTrimming", "oom_dump:off,policy:async", trimming},
    {"AsyncPrivatePool", "oom_dump:off,policy:async", private_pool},
    {"AsyncMemPools", "oom_dump:off,policy:async", mem_pools},
    {"AsyncDestroyedStream", "oom_dump:off,policy:async", destroyed_stream},
    {"PagedMissAndHit", "oom_dump:off,policy:paged", miss_and_hit},
    {"PagedUsedElsewhere", "oom_dump:off,policy:paged", used_elsewhere},
    {"PagedFlushOnAFullDevice", "oom_dump:off,policy:paged", flush_on_a_full_device},
    {"PagedOutOfMemory", "oom_dump:off,policy:paged", out_of_memory},
    {"PagedTrimming", "oom_dump:off,policy:paged", trimming},
    {"PagedDecaying", "oom_dump:off,policy:paged,decay_ms:3000", decaying},
    {"PagedGrowingOverAGap", "oom_dump:off,policy:paged", growing_over_a_gap},
    {"PagedGatheredFromStreams", "oom_dump:off,policy:paged,per_process_memory_fraction:0.5", gathered_from_streams},
    {"PagedClaimed", "oom_dump:off,policy:paged", claimed},
    {"PagedPrivatePool", "oom_dump:off,policy:paged", private_pool},
    {"PagedMemPools", "oom_dump:off,policy:paged", mem_pools},
    {"PagedOverflowPool", "oom_dump:off,policy:paged", overflow_pool},
    {"PagedRestoredCheckpoint", "oom_dump:off,policy:paged", restored_checkpoint},
    {"PagedDestroyedStream", "oom_dump:off,policy:paged", destroyed_stream},
};

// The errors a driver may answer with: memory is short, and a failure that is none of ours.
const std::vector<int> kErrors = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_INVALID_CONTEXT};

struct Case {
  Scenario scenario;
  int error;

  [[nodiscard]] std::string name() const { return std::string(scenario.name) + "_" + std::to_string(error); }
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.name(); }

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Scenario& scenario : kScenarios)
    for (int error : kErrors) cases.push_back({scenario, error});
  return cases;
}

class Faults : public ::testing::TestWithParam<Case> {};

void expect_sound(World& world) {
  EXPECT_NO_THROW(world.allocator.check());
  std::map<void*, int> states;
  for (const SegmentInfo& segment : world.allocator.snapshot().segments)
    for (const BlockInfo& block : segment.blocks)
      if (block.state == BlockState::active_allocated) ++states[reinterpret_cast<void*>(block.address)];
  EXPECT_EQ(states.size(), world.live.size());
  for (void* pointer : world.live) EXPECT_EQ(states[pointer], 1) << "a live block is lost";
}

// The device's address space for mappings is whole: no reservation is left in it.
bool has_all_addresses(World& world) {
  constexpr std::size_t all = 128 * 128 * kMega;
  CUdeviceptr address = 0;
  if (world.driver.api().mem_address_reserve(&address, all, 0, 0, 0) != CUDA_SUCCESS) return false;
  return world.driver.api().mem_address_free(address, all) == CUDA_SUCCESS;
}

// Runs the scenario with the k-th call from its start failing. True if it got that far.
bool run_failing_call(const Case& parameter, std::uint64_t k) {
  World world(parameter.scenario.options);
  EXPECT_TRUE(has_all_addresses(world)) << "the test knows another size of the address space";
  world.driver.fail_call("", k, parameter.error);
  try {
    parameter.scenario.run(world);
  } catch (const Error&) {
  }
  const bool failed = world.driver.faults_injected() != 0;
  world.driver.clear_faults();
  expect_sound(world);

  // The heap is as usable as before, and nothing is left when everything is freed.
  EXPECT_NO_THROW(world.give(world.take(9000)));
  while (!world.live.empty()) world.give(world.live.back());
  world.driver.run_until_idle();
  EXPECT_NO_THROW(world.allocator.empty_cache());
  expect_sound(world);
  EXPECT_EQ(world.driver.used_bytes(), 0U) << "device memory leaked";
  EXPECT_TRUE(has_all_addresses(world)) << "addresses leaked";
  EXPECT_EQ(world.allocator.memory_stats().active_bytes.all.current, 0);
  return failed;
}

TEST_P(Faults, EveryCallMayFailOnceWithoutHarm) {
  std::uint64_t k = 1;
  while (run_failing_call(GetParam(), k)) {
    ASSERT_FALSE(::testing::Test::HasFailure()) << "when call " << k << " fails with CUresult " << GetParam().error;
    ++k;
    ASSERT_LT(k, 10000U) << "the scenario never passes";
  }
  RecordProperty("faults", static_cast<int>(k - 1));
}

// A map that can neither be finished nor undone keeps its addresses, so that nothing is mapped over
// what is there; the next flush gets both back.
TEST(DoubleFaults, AMapThatCannotBeUndoneIsUndoneLater) {
  World world("oom_dump:off,expandable_segments:True");
  world.driver.fail_call("cuMemSetAccess", 1, CUDA_ERROR_OUT_OF_MEMORY);
  world.driver.fail_call("cuMemUnmap", 2, CUDA_ERROR_LAUNCH_FAILED);
  void* block = world.take(50 * kMega);
  world.allocator.check();
  EXPECT_EQ(world.allocator.memory_stats().reserved_bytes.all.current, 60 * std::int64_t{kMega});
  world.give(block);
  world.allocator.empty_cache();
  world.allocator.check();
  EXPECT_EQ(world.driver.used_bytes(), 0U);
  EXPECT_TRUE(has_all_addresses(world));
}

// An unmap that fails half way takes no more from the heap than it took from the device.
TEST(DoubleFaults, AnUnmapThatStopsHalfWayKeepsTheRest) {
  World world("oom_dump:off,expandable_segments:True");
  world.give(world.take(60 * kMega));
  world.driver.fail_call("cuMemUnmap", 2, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_THROW(world.allocator.empty_cache(), DriverError);
  world.allocator.check();
  const MemoryStats stats = world.allocator.memory_stats();
  EXPECT_EQ(stats.reserved_bytes.all.current, 40 * std::int64_t{kMega});
  EXPECT_EQ(stats.num_device_free, 1);
  EXPECT_EQ(world.driver.used_bytes(), 40 * kMega);
  world.allocator.empty_cache();
  EXPECT_EQ(world.driver.used_bytes(), 0U);
}

// A handle whose release is refused keeps memory that nothing maps any more: it is tried again.
TEST(DoubleFaults, AHandleThatCannotBeReleasedIsReleasedLater) {
  World world("oom_dump:off,expandable_segments:True");
  world.driver.fail_call("cuMemRelease", 1, CUDA_ERROR_LAUNCH_FAILED);
  world.driver.fail_call("cuMemRelease", 3, CUDA_ERROR_LAUNCH_FAILED);
  world.give(world.take(30 * kMega));
  world.allocator.empty_cache();
  EXPECT_EQ(world.driver.used_bytes(), 20 * kMega);
  world.give(world.take(1000));
  world.allocator.empty_cache();
  EXPECT_EQ(world.driver.used_bytes(), 0U);
}

INSTANTIATE_TEST_SUITE_P(EveryScenario, Faults, ::testing::ValuesIn(all_cases()),
                         [](const ::testing::TestParamInfo<Case>& parameter) { return parameter.param.name(); });

}  // namespace
}  // namespace cistern
