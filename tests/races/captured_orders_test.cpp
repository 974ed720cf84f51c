// Captures of the driver's own and launches of their graphs, beside frees that other streams hold
// up, in all completion orders: the race detector is silent, the heap whole, and the graph's memory
// nobody else's while its pool is in use.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/byte_units.h"
#include "tests/property.h"
#include "tests/races/choices.h"
#include "tests/races/race_frames.h"

namespace cistern {
namespace {

class CapturedWorld {
 public:
  CapturedWorld(Choices& choices, const std::string& options)
      : driver({.capacity_bytes = 512 * kMega,
                .backing = Backing::none,
                .races = RaceMode::collect,
                .race_frames = race_frames()}),
        api(driver.api()),
        allocator(
            {.driver = &api,
             .options = AllocatorOptions::parse("oom_dump:off," + options, AllocatorOptions::parse("policy:classic"))}),
        choices_(choices) {
    EXPECT_EQ(api.primary_ctx_retain(&context_, 0), CUDA_SUCCESS);
    EXPECT_EQ(api.ctx_set_current(context_), CUDA_SUCCESS);
    for (int i = 0; i < 5; ++i) streams.push_back(driver.create_stream());
  }
  ~CapturedWorld() {
    EXPECT_EQ(api.ctx_set_current(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(api.primary_ctx_release(0), CUDA_SUCCESS);
  }
  CapturedWorld(const CapturedWorld&) = delete;
  CapturedWorld& operator=(const CapturedWorld&) = delete;

  void* take(std::size_t stream, std::size_t bytes) {
    void* block = allocator.allocate(bytes, streams[stream]);
    touch(stream, {}, {{block, bytes}});
    return block;
  }
  // Read on another stream, behind the owner's work so far, with the allocator told.
  void use(void* block, std::size_t bytes, std::size_t owner, std::size_t reader) {
    order(owner, reader);
    touch(reader, {{block, bytes}}, {});
    allocator.record_stream(block, streams[reader]);
  }
  void order(std::size_t earlier, std::size_t later) {
    CUevent event = nullptr;
    EXPECT_EQ(api.event_create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    EXPECT_EQ(api.event_record(event, streams[earlier]), CUDA_SUCCESS);
    EXPECT_EQ(api.stream_wait_event(streams[later], event, 0), CUDA_SUCCESS);
    EXPECT_EQ(api.event_destroy(event), CUDA_SUCCESS);
  }

  void begin_capture(std::size_t stream, PoolId pool) {
    allocator.begin_allocate_to_pool(0, pool, PoolFilter::this_thread());
    EXPECT_EQ(api.stream_begin_capture(streams[stream], CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  }
  CUgraphExec end_capture(std::size_t stream, PoolId pool) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    EXPECT_EQ(api.stream_end_capture(streams[stream], &graph), CUDA_SUCCESS);
    allocator.end_allocate_to_pool(0, pool);
    EXPECT_EQ(api.graph_instantiate(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
    return exec;
  }
  void launch(CUgraphExec exec, std::size_t stream) {
    EXPECT_EQ(api.graph_launch(exec, streams[stream]), CUDA_SUCCESS);
  }

  // Any number of streams that have work step, in any order.
  void let_streams_step() {
    for (;;) {
      std::vector<StreamHandle> busy;
      for (StreamHandle stream : streams) {
        CUstreamCaptureStatus status{};
        EXPECT_EQ(api.stream_is_capturing(stream, &status), CUDA_SUCCESS);
        const bool runs = status == CU_STREAM_CAPTURE_STATUS_NONE;
        if (runs && api.stream_query(stream) == CUDA_ERROR_NOT_READY) busy.push_back(stream);
      }
      const std::size_t choice = choices_.choose(busy.size() + 1);
      if (choice == busy.size()) return;
      driver.step(busy[choice]);
    }
  }

  void judge() {
    EXPECT_NO_THROW(allocator.check());
    for (const RaceReport& report : driver.race_reports()) ADD_FAILURE() << report.to_string() << kHowToSeeFrames;
  }

  SimulatedDriver driver;
  const DriverApi& api;
  CachingAllocator allocator;
  std::vector<StreamHandle> streams;

 private:
  void touch(std::size_t stream, std::vector<MemoryRange> reads, std::vector<MemoryRange> writes) {
    driver.launch(streams[stream], std::move(reads), std::move(writes), std::chrono::milliseconds(1), [] {});
  }

  Choices& choices_;
  CUcontext context_ = nullptr;
};

constexpr std::size_t kLarge = 12 * kMega;

// A block from before, which streams still read, is freed while a capture is under way; in the
// capture a block goes through a fork, and, joined or not, its memory is asked for again.
void graph_beside_a_pending_free(CapturedWorld& world, bool joined_first, bool reuses) {
  void* before = world.take(0, kLarge);
  for (std::size_t reader = 1; reader <= 2; ++reader) world.use(before, kLarge, 0, reader);
  world.driver.run_until_idle(world.streams[0]);
  const PoolId pool = capture_pool_id();
  world.begin_capture(3, pool);
  void* forked = world.take(3, kLarge);
  world.use(forked, kLarge, 3, 4);
  world.allocator.deallocate(before);
  world.allocator.deallocate(forked);
  world.let_streams_step();
  if (joined_first) world.order(4, 3);
  void* next = world.take(3, kLarge);
  EXPECT_EQ(next == forked, joined_first && reuses);
  if (!joined_first) world.order(4, 3);
  const CUgraphExec exec = world.end_capture(3, pool);
  world.launch(exec, 3);
  void* outside = world.take(0, kLarge);
  EXPECT_NE(outside, forked) << "it is the graph's";
  EXPECT_NE(outside, next);
  world.let_streams_step();
  world.launch(exec, 4);
  world.allocator.deallocate(outside);
  EXPECT_NE(world.take(3, kLarge), forked);
}

// What a graph wrote is read outside of it, and freed while the reader may still run.
void result_of_a_graph_freed_beside_its_reader(CapturedWorld& world) {
  const PoolId pool = capture_pool_id();
  world.begin_capture(0, pool);
  void* result = world.take(0, kLarge);
  const CUgraphExec exec = world.end_capture(0, pool);
  world.launch(exec, 0);
  for (std::size_t reader = 1; reader <= 3; ++reader) world.use(result, kLarge, 0, reader);
  world.allocator.deallocate(result);
  world.allocator.release_pool(0, pool);
  EXPECT_EQ(world.api.graph_exec_destroy(exec), CUDA_SUCCESS);
  world.let_streams_step();
  static_cast<void>(world.take(4, kLarge));
  world.let_streams_step();
  world.allocator.empty_cache();
  static_cast<void>(world.take(4, kLarge));
}

struct Scenario {
  const char* name;
  const char* options;
  void (*run)(CapturedWorld& world);
};
void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

constexpr const char* kReuse = "graph_capture_record_stream_reuse:True";
const std::vector<Scenario> kScenarios = {
    {"JoinedFirst", "", [](CapturedWorld& world) { graph_beside_a_pending_free(world, true, false); }},
    {"JoinedLater", "", [](CapturedWorld& world) { graph_beside_a_pending_free(world, false, false); }},
    {"JoinedFirstWithReuse", kReuse, [](CapturedWorld& world) { graph_beside_a_pending_free(world, true, true); }},
    {"JoinedLaterWithReuse", kReuse, [](CapturedWorld& world) { graph_beside_a_pending_free(world, false, true); }},
    {"ResultFreedBesideItsReader", "", result_of_a_graph_freed_beside_its_reader},
};

class CapturedOrders : public ::testing::TestWithParam<Scenario> {};

TEST_P(CapturedOrders, NoneBreaksTheScenario) {
  const Scenario& scenario = GetParam();
  Choices choices;
  int runs = 0;
  do {
    SCOPED_TRACE(choices.to_string());
    CapturedWorld world(choices, scenario.options);
    scenario.run(world);
    world.judge();
    world.driver.run_until_idle();
    world.judge();
    ++runs;
  } while (!HasFailure() && runs < kMostOrders && choices.advance());
  RecordProperty("orders", runs);
  if (!HasFailure()) std::printf("%s: %d orders\n", scenario.name, runs);
}

INSTANTIATE_TEST_SUITE_P(EveryScenario, CapturedOrders, ::testing::ValuesIn(kScenarios),
                         [](const ::testing::TestParamInfo<Scenario>& parameter) {
                           return std::string(parameter.param.name);
                         });

}  // namespace
}  // namespace cistern
