// The free-running drive: the driver's own threads run what is ready. Clean under ThreadSanitizer.
#include <cistern/error.h>

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/simulated/driver_state.h"
#include "tests/simulated/driver_fixture.h"
#include "tests/simulated/gate.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::Gate;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

// Gates are declared before the driver: when it ends, it waits for functions that run.
ReadyDriver make_free(int devices = 1) {
  return ReadyDriver({.devices = devices, .capacity_bytes = 64 * MiB, .drive = Drive::free});
}

TEST(FreeDrive, WorkIsDoneThoughNobodyWaits) {
  std::atomic<bool> ran{false};
  ReadyDriver ready = make_free();
  const StreamHandle stream = ready.driver.create_stream();
  const CUevent event = ready.create_event();
  ready.driver.launch(stream, {}, {}, 1ms, [&] { ran = true; });
  EXPECT_EQ(ready.api.event_record(event, stream), CUDA_SUCCESS);
  while (ready.api.event_query(event) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
  EXPECT_TRUE(ran);
  EXPECT_EQ(ready.api.stream_query(stream), CUDA_SUCCESS);
}

TEST(FreeDrive, AStreamThatIsBlockedHoldsUpNoOther) {
  Gate gate;
  std::vector<int> order;
  ReadyDriver ready = make_free();
  const StreamHandle blocked = ready.driver.create_stream();
  const StreamHandle other = ready.driver.create_stream();
  EXPECT_EQ(ready.api.launch_host_func(blocked, Gate::pass, &gate), CUDA_SUCCESS);
  gate.wait_until_reached();
  ready.note(other, order, 1);
  EXPECT_EQ(ready.api.stream_synchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(order, std::vector<int>{1});
  EXPECT_EQ(ready.api.stream_query(blocked), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_EQ(ready.api.stream_synchronize(blocked), CUDA_SUCCESS);
}

TEST(FreeDrive, AsManyFunctionsRunAtOnceAsThereAreStreams) {
  constexpr std::size_t kStreams = 12;
  std::vector<Gate> gates(kStreams);
  ReadyDriver ready = make_free();
  std::vector<StreamHandle> streams;
  for (Gate& gate : gates) {
    streams.push_back(ready.driver.create_stream());
    EXPECT_EQ(ready.api.launch_host_func(streams.back(), Gate::pass, &gate), CUDA_SUCCESS);
    EXPECT_EQ(ready.api.launch_host_func(streams.back(), Gate::pass, &gate), CUDA_SUCCESS);
  }
  for (Gate& gate : gates) gate.wait_until_reached();  // all are blocked at once
  for (const StreamHandle stream : streams) EXPECT_EQ(ready.api.stream_query(stream), CUDA_ERROR_NOT_READY);
  for (Gate& gate : gates) gate.open();
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
}

TEST(FreeDrive, OneFunctionOfAStreamRunsAtATimeAndInOrder) {
  std::vector<int> order;  // guarded by the order of the stream
  ReadyDriver ready = make_free();
  const StreamHandle stream = ready.driver.create_stream();
  std::vector<int> expected;
  for (int i = 0; i < 500; ++i) {
    ready.note(stream, order, i);
    expected.push_back(i);
  }
  EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(order, expected);
}

// Blocks as many threads as there may be: a graph's nodes are ready all at once.
class EveryThreadBlocked {
 public:
  EveryThreadBlocked(ReadyDriver& ready, StreamHandle stream, std::vector<Gate>& gates) {
    simulated::DriverState& state = *simulated::find_driver_state(ready.api);
    std::vector<simulated::GraphOperation> nodes;
    for (Gate& gate : gates) {
      const auto pass = [&gate](CUresult) {
        Gate::pass(&gate);
        return CUDA_SUCCESS;
      };
      nodes.push_back({.work = {.label = {simulated::OperationKind::host_function}, .function = pass}});
    }
    const std::lock_guard lock(state.mutex);
    state.executor.queue_graph(*state.streams.find(stream, 0), std::move(nodes));
  }
};

TEST(FreeDrive, ThereAreNoMoreThreadsThanStreamsAndTheyTakeTheHighestPriorityFirst) {
  std::vector<Gate> gates(4);  // for the streams below, and the legacy one
  std::vector<int> order;      // guarded by there being one thread that is not blocked
  ReadyDriver ready = make_free();
  const StreamHandle graph = ready.driver.create_stream();
  const StreamHandle low = ready.driver.create_stream(0, 0);
  const StreamHandle high = ready.driver.create_stream(0, -5);
  const EveryThreadBlocked blocked(ready, graph, gates);
  for (Gate& gate : gates) gate.wait_until_reached();
  ready.note(low, order, 0);
  ready.note(high, order, 5);
  EXPECT_EQ(ready.api.stream_query(high), CUDA_ERROR_NOT_READY);
  gates[0].open();
  EXPECT_EQ(ready.api.stream_synchronize(low), CUDA_SUCCESS);
  EXPECT_EQ(order, (std::vector<int>{5, 0}));
  for (Gate& gate : gates) gate.open();
  EXPECT_EQ(ready.api.stream_synchronize(graph), CUDA_SUCCESS);
}

TEST(FreeDrive, WhatOneEventLetsGoRunsAtOnceThoughEachBlocks) {
  Gate first;
  Gate second;
  Gate third;
  ReadyDriver ready = make_free();
  const StreamHandle producer = ready.driver.create_stream();
  const CUevent event = ready.create_event();
  EXPECT_EQ(ready.api.launch_host_func(producer, Gate::pass, &first), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_record(event, producer), CUDA_SUCCESS);
  for (Gate* gate : {&second, &third}) {
    const StreamHandle consumer = ready.driver.create_stream();
    EXPECT_EQ(ready.api.stream_wait_event(consumer, event, 0), CUDA_SUCCESS);
    EXPECT_EQ(ready.api.launch_host_func(consumer, Gate::pass, gate), CUDA_SUCCESS);
  }
  first.open();
  second.wait_until_reached();
  third.wait_until_reached();
  second.open();
  third.open();
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
}

TEST(FreeDrive, FreeingMemoryIsNotHeldUpByAHostFunctionOfAnotherDevice) {
  Gate gate;
  ReadyDriver ready = make_free(2);
  const StreamHandle there = ready.driver.create_stream(1);
  EXPECT_EQ(ready.api.launch_host_func(there, Gate::pass, &gate), CUDA_SUCCESS);
  gate.wait_until_reached();
  EXPECT_EQ(ready.api.mem_free(ready.allocate(2 * MiB)), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
  gate.open();
}

TEST(FreeDrive, FreeingMemoryWaitsForAKernelOfAnotherDevice) {
  ReadyDriver ready = make_free(2);
  const CUdeviceptr pointer = ready.allocate(2 * MiB);
  auto* memory = reinterpret_cast<unsigned char*>(pointer);
  ready.enable_peer(1, 0);
  std::atomic<bool> running{false};
  std::atomic<bool> finished{false};
  ready.driver.launch(ready.driver.create_stream(1), {}, {{memory, 2 * MiB}}, 1us, [&] {
    running = true;
    while (ready.driver.calls("cuMemFree") == 0) std::this_thread::yield();
    for (std::size_t i = 0; i < 2 * MiB; i += 64) memory[i] = 1;
    finished = true;
  });
  while (!running) std::this_thread::yield();
  EXPECT_EQ(ready.api.mem_free(pointer), CUDA_SUCCESS);
  EXPECT_TRUE(finished);
}

TEST(FreeDrive, OneThreadsWaitIsWokenByAnothersWork) {
  Gate gate;
  int value = 0;
  ReadyDriver ready = make_free();
  const StreamHandle stream = ready.driver.create_stream();
  EXPECT_EQ(ready.api.launch_host_func(stream, Gate::pass, &gate), CUDA_SUCCESS);
  ready.driver.launch(stream, {}, {}, 0ns, [&value] { value = 1; });
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] {
      EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_SUCCESS);
      EXPECT_EQ(value, 1);
    });
  }
  while (ready.driver.host_synchronizations() < 3) std::this_thread::yield();
  gate.open();
  for (std::thread& waiter : waiters) waiter.join();
}

TEST(FreeDrive, VirtualTimeDoesNotDependOnHowFastThreadsAre) {
  for (int round = 0; round < 20; ++round) {
    ReadyDriver ready = make_free();
    const StreamHandle first = ready.driver.create_stream();
    const StreamHandle second = ready.driver.create_stream();
    const CUevent start = ready.create_event();
    const CUevent middle = ready.create_event();
    const CUevent end = ready.create_event();
    EXPECT_EQ(ready.api.event_record(start, second), CUDA_SUCCESS);
    ready.driver.occupy(first, 5ms);
    EXPECT_EQ(ready.api.event_record(middle, first), CUDA_SUCCESS);
    ready.driver.occupy(second, 1ms);
    EXPECT_EQ(ready.api.stream_wait_event(second, middle, 0), CUDA_SUCCESS);
    ready.driver.occupy(second, 2ms);
    EXPECT_EQ(ready.api.event_record(end, second), CUDA_SUCCESS);
    EXPECT_EQ(ready.api.event_synchronize(end), CUDA_SUCCESS);
    float elapsed = 0;
    EXPECT_EQ(ready.api.event_elapsed_time(&elapsed, start, end), CUDA_SUCCESS);
    EXPECT_FLOAT_EQ(elapsed, 7.0F);
    EXPECT_EQ(ready.driver.virtual_time(), 7ms);
  }
}

TEST(FreeDrive, WorkThatTheHostHasNotFoundDoneDoesNotMoveItsClock) {
  ReadyDriver ready = make_free();
  const StreamHandle unseen = ready.driver.create_stream();
  const StreamHandle stream = ready.driver.create_stream();
  const CUevent start = ready.create_event();
  const CUevent end = ready.create_event();
  EXPECT_EQ(ready.api.event_record(start, stream), CUDA_SUCCESS);
  ready.driver.occupy(unseen, 5ms);
  while (ready.driver.virtual_time() != 5ms) std::this_thread::yield();
  ready.driver.occupy(stream, 1ms);
  EXPECT_EQ(ready.api.event_record(end, stream), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_synchronize(end), CUDA_SUCCESS);
  float elapsed = 0;
  EXPECT_EQ(ready.api.event_elapsed_time(&elapsed, start, end), CUDA_SUCCESS);
  EXPECT_FLOAT_EQ(elapsed, 1.0F);
}

TEST(FreeDrive, ItsThreadsEndWithItWhateverIsQueued) {
  std::atomic<int> ran{0};
  Gate gate;
  std::thread opener;
  {
    ReadyDriver ready = make_free();
    const StreamHandle stream = ready.driver.create_stream();
    EXPECT_EQ(ready.api.launch_host_func(stream, Gate::pass, &gate), CUDA_SUCCESS);
    gate.wait_until_reached();
    ready.driver.launch(stream, {}, {}, 0ns, [&] { ++ran; });
    opener = std::thread([&gate] { gate.open(); });
  }  // waits for the function that runs, and no more
  opener.join();
  EXPECT_LE(ran, 1);
}

TEST(FreeDrive, ItHasNoSteps) {
  ReadyDriver ready = make_free();
  EXPECT_THROW(ready.driver.step(), NotSupported);
  EXPECT_THROW(ready.driver.step(ready.driver.create_stream()), NotSupported);
  std::atomic<int> ran{0};
  for (int i = 0; i < 4; ++i) ready.driver.launch(ready.driver.create_stream(), {}, {}, 0ns, [&ran] { ++ran; });
  ready.driver.run_until_idle();
  EXPECT_EQ(ran, 4);
}

TEST(FreeDrive, AccountsAloneKeepNoThreads) {
  EXPECT_THROW(SimulatedDriver({.backing = Backing::none, .drive = Drive::free}), InvalidArgument);
  EXPECT_EQ(SimulatedOptions::parse("drive=free").drive, Drive::free);
  EXPECT_EQ(SimulatedOptions::parse("drive=stepped").drive, Drive::stepped);
  EXPECT_EQ(SimulatedOptions::parse("").drive, Drive::stepped);
  EXPECT_THROW((void)SimulatedOptions::parse("drive=fast"), InvalidArgument);
}

}  // namespace
}  // namespace cistern
