#include <cistern/error.h>

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

TEST(SimulatedStreams, NothingRunsUntilSomebodyWaits) {
  ReadyDriver ready;
  std::vector<int> order;
  const StreamHandle stream = ready.driver.create_stream();
  ready.note(stream, order, 1);
  EXPECT_EQ(ready.api.stream_query(stream), CUDA_ERROR_NOT_READY);
  EXPECT_TRUE(order.empty());
  EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(order, std::vector<int>{1});
  EXPECT_EQ(ready.api.stream_query(stream), CUDA_SUCCESS);
}

TEST(SimulatedStreams, WorkOfOneStreamRunsInTheOrderItWasQueued) {
  ReadyDriver ready;
  std::vector<int> order;
  const StreamHandle stream = ready.driver.create_stream();
  for (int i = 0; i < 5; ++i) ready.note(stream, order, i);
  ready.driver.run_until_idle();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(SimulatedStreams, WaitingForOneStreamLeavesTheOthersAlone) {
  ReadyDriver ready;
  std::vector<int> order;
  const StreamHandle first = ready.driver.create_stream();
  const StreamHandle second = ready.driver.create_stream();
  ready.note(first, order, 1);
  ready.note(second, order, 2);
  EXPECT_EQ(ready.api.stream_synchronize(second), CUDA_SUCCESS);
  EXPECT_EQ(order, std::vector<int>{2});
  ready.driver.run_until_idle(first);
  EXPECT_EQ(order, (std::vector<int>{2, 1}));
}

TEST(SimulatedStreams, StepRunsWhatIsReadyFirstInVirtualTime) {
  ReadyDriver ready;
  std::vector<int> order;
  const StreamHandle slow = ready.driver.create_stream();
  const StreamHandle fast = ready.driver.create_stream();
  ready.note(slow, order, 1, 10ms);
  ready.note(slow, order, 2);
  ready.note(fast, order, 3, 1ms);
  ready.note(fast, order, 4);
  while (ready.driver.step()) {
  }
  EXPECT_EQ(order, (std::vector<int>{1, 3, 4, 2}));
  EXPECT_EQ(ready.driver.virtual_time(), 10ms);
}

TEST(SimulatedStreams, OfTwoReadyStreamsTheOneWithTheHigherPriorityRunsFirst) {
  ReadyDriver ready;
  std::vector<int> order;
  ready.note(ready.driver.create_stream(0, 0), order, 0);
  ready.note(ready.driver.create_stream(0, -5), order, 5);
  ready.note(ready.driver.create_stream(0, -1), order, 1);
  ready.driver.run_until_idle();
  EXPECT_EQ(order, (std::vector<int>{5, 1, 0}));
}

TEST(SimulatedStreams, StepOfAStreamRunsWhatItNeeds) {
  ReadyDriver ready;
  std::vector<int> order;
  const StreamHandle producer = ready.driver.create_stream();
  const StreamHandle consumer = ready.driver.create_stream();
  const StreamHandle other = ready.driver.create_stream();
  const CUevent event = ready.create_event();
  ready.note(other, order, 0);
  ready.note(producer, order, 1);
  EXPECT_EQ(ready.api.event_record(event, producer), CUDA_SUCCESS);
  ready.note(producer, order, 2);
  EXPECT_EQ(ready.api.stream_wait_event(consumer, event, 0), CUDA_SUCCESS);
  ready.note(consumer, order, 3);
  EXPECT_TRUE(ready.driver.step(consumer));  // the wait
  EXPECT_TRUE(ready.driver.step(consumer));
  EXPECT_EQ(order, (std::vector<int>{1, 3}));
  EXPECT_FALSE(ready.driver.step(consumer));
}

TEST(SimulatedStreams, TheLegacyStreamWaitsForBlockingStreamsAndTheyForIt) {
  ReadyDriver ready;
  std::vector<int> order;
  const StreamHandle blocking = ready.create_blocking_stream();
  const StreamHandle other_blocking = ready.create_blocking_stream();
  const StreamHandle non_blocking = ready.driver.create_stream();
  ready.note(blocking, order, 1);
  ready.note(nullptr, order, 2);
  ready.note(other_blocking, order, 3);
  ready.note(non_blocking, order, 4);

  ready.driver.run_until_idle(non_blocking);
  EXPECT_EQ(order, std::vector<int>{4});
  ready.driver.run_until_idle(other_blocking);
  EXPECT_EQ(order, (std::vector<int>{4, 1, 2, 3}));
}

TEST(SimulatedStreams, WaitingForTheLegacyStreamWaitsForBlockingStreams) {
  ReadyDriver ready;
  std::vector<int> order;
  ready.note(ready.create_blocking_stream(), order, 1);
  ready.note(ready.driver.create_stream(), order, 2);
  EXPECT_EQ(ready.api.stream_query(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(ready.api.stream_synchronize(CU_STREAM_LEGACY), CUDA_SUCCESS);
  EXPECT_EQ(order, std::vector<int>{1});
}

TEST(SimulatedStreams, HandlesZeroAndOneAreTheLegacyStream) {
  ReadyDriver ready;
  unsigned long long zero = 0;
  unsigned long long one = 0;
  unsigned long long two = 0;
  EXPECT_EQ(ready.api.stream_get_id(nullptr, &zero), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_get_id(CU_STREAM_LEGACY, &one), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_get_id(CU_STREAM_PER_THREAD, &two), CUDA_SUCCESS);
  EXPECT_EQ(zero, one);
  EXPECT_NE(zero, two);
}

TEST(SimulatedStreams, EachThreadHasItsOwnDefaultStreamWhichIsBlocking) {
  ReadyDriver ready;
  unsigned long long mine = 0;
  unsigned long long theirs = 0;
  EXPECT_EQ(ready.api.stream_get_id(CU_STREAM_PER_THREAD, &mine), CUDA_SUCCESS);
  std::vector<int> order;
  std::thread([&] {
    ready.use(0);
    EXPECT_EQ(ready.api.stream_get_id(CU_STREAM_PER_THREAD, &theirs), CUDA_SUCCESS);
    ready.note(CU_STREAM_PER_THREAD, order, 1);
  }).join();
  EXPECT_NE(mine, theirs);
  EXPECT_EQ(ready.api.stream_query(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  ready.note(nullptr, order, 2);
  EXPECT_EQ(ready.api.stream_synchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(SimulatedStreams, DefaultStreamsBelongToTheCurrentDevice) {
  ReadyDriver ready({.devices = 2, .capacity_bytes = 16 * MiB});
  std::vector<int> order;
  ready.note(nullptr, order, 0);
  ready.use(1);
  ready.note(nullptr, order, 1);
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(order, std::vector<int>{1});
  ready.driver.run_until_idle(nullptr, 0);
  EXPECT_EQ(order, (std::vector<int>{1, 0}));
}

TEST(SimulatedStreams, DestroyedStreamFinishesItsWork) {
  ReadyDriver ready;
  std::vector<int> order;
  const StreamHandle stream = ready.driver.create_stream();
  ready.note(stream, order, 1);
  EXPECT_EQ(ready.api.stream_destroy(stream), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_query(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(order, std::vector<int>{1});
}

TEST(SimulatedStreams, WorkOfADestroyedBlockingStreamStillComesBeforeTheLegacyStreams) {
  ReadyDriver ready;
  std::vector<int> order;
  const StreamHandle stream = ready.create_blocking_stream();
  ready.note(stream, order, 1);
  EXPECT_EQ(ready.api.stream_destroy(stream), CUDA_SUCCESS);
  ready.note(nullptr, order, 2);
  EXPECT_EQ(ready.api.stream_synchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(SimulatedStreams, AReusedHandleInheritsNothing) {
  ReadyDriver ready;
  unsigned long long first_id = 0;
  unsigned long long second_id = 0;
  std::vector<int> order;
  const StreamHandle first = ready.driver.create_stream(0, -3);
  EXPECT_EQ(ready.api.stream_get_id(first, &first_id), CUDA_SUCCESS);
  ready.note(first, order, 1);
  ready.driver.destroy_stream(first);
  const StreamHandle second = ready.driver.create_stream();
  EXPECT_EQ(second, first);
  EXPECT_EQ(ready.api.stream_get_id(second, &second_id), CUDA_SUCCESS);
  EXPECT_NE(first_id, second_id);
  EXPECT_EQ(ready.api.stream_query(second), CUDA_SUCCESS);
  int priority = -1;
  EXPECT_EQ(ready.api.stream_get_priority(second, &priority), CUDA_SUCCESS);
  EXPECT_EQ(priority, 0);
}

TEST(SimulatedStreams, PriorityIsClampedAndFlagsAreKept) {
  ReadyDriver ready;
  CUstream stream = nullptr;
  int priority = 0;
  unsigned flags = 0;
  EXPECT_EQ(ready.api.stream_create_with_priority(&stream, CU_STREAM_NON_BLOCKING, -99), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_get_priority(stream, &priority), CUDA_SUCCESS);
  EXPECT_EQ(priority, -5);
  EXPECT_EQ(ready.api.stream_get_flags(stream, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
  EXPECT_EQ(ready.api.stream_create_with_priority(&stream, 6, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.stream_get_flags(nullptr, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_STREAM_DEFAULT});
}

TEST(SimulatedStreams, DefaultStreamsCannotBeDestroyed) {
  ReadyDriver ready;
  for (const CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    EXPECT_EQ(ready.api.stream_destroy(stream), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_THROW(ready.driver.destroy_stream(stream), InvalidArgument);
  }
}

TEST(SimulatedStreams, HostFunctionsRunInStreamOrderAndMayNotCallTheDriver) {
  ReadyDriver ready;
  struct Seen {
    const DriverApi* api;
    std::vector<int> order;
    CUresult result = CUDA_SUCCESS;
  } seen{&ready.api, {}, CUDA_SUCCESS};
  const StreamHandle stream = ready.driver.create_stream();
  ready.note(stream, seen.order, 1);
  const auto function = [](void* data) {
    auto& state = *static_cast<Seen*>(data);
    state.order.push_back(2);
    CUdeviceptr pointer = 0;
    state.result = state.api->mem_alloc(&pointer, 512);
  };
  EXPECT_EQ(ready.api.launch_host_func(stream, function, &seen), CUDA_SUCCESS);
  ready.note(stream, seen.order, 3);
  EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(seen.order, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(seen.result, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(ready.driver.used_bytes(), 0u);
  EXPECT_EQ(ready.api.launch_host_func(stream, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST(SimulatedStreams, AnOperationMayNotDriveItsDriver) {
  ReadyDriver ready;
  const StreamHandle stream = ready.driver.create_stream();
  int refused = 0;
  ready.driver.launch(stream, {}, {}, 0ns, [&] {
    const auto refuses = [&](auto control) {
      try {
        control();
      } catch (const DriverError& error) {
        if (error.code() == CUDA_ERROR_NOT_PERMITTED) ++refused;
      }
    };
    refuses([&] { ready.driver.occupy(stream, 1ms); });
    refuses([&] { ready.driver.step(); });
    refuses([&] { ready.driver.run_until_idle(stream); });
  });
  ready.driver.run_until_idle();
  EXPECT_EQ(refused, 3);
}

TEST(SimulatedStreams, AFunctionThatThrowsFailsItsDeviceForGood) {
  ReadyDriver ready({.devices = 2, .capacity_bytes = 16 * MiB});
  const StreamHandle stream = ready.driver.create_stream();
  std::vector<int> order;
  ready.driver.launch(stream, {}, {}, 0ns, [] { throw 42; });
  ready.note(stream, order, 1);
  EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_TRUE(order.empty());  // what was queued behind is dropped
  CUdeviceptr pointer = 0;
  EXPECT_EQ(ready.api.mem_alloc(&pointer, 512), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_ERROR_LAUNCH_FAILED);
  ready.use(1);
  EXPECT_EQ(ready.api.mem_alloc(&pointer, 512), CUDA_SUCCESS);
}

TEST(SimulatedStreams, QueuedWorkIsDroppedWithTheDriver) {
  std::vector<int> order;
  const auto held = std::make_shared<int>(0);
  {
    ReadyDriver ready;
    ready.driver.launch(ready.driver.create_stream(), {}, {}, 0ns, [&order, held] { order.push_back(1); });
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_TRUE(order.empty());
  EXPECT_EQ(held.use_count(), 1);
}

TEST(SimulatedStreams, WhatAFunctionHoldsIsReleasedWithNoLockHeld) {
  ReadyDriver ready;
  struct Caller {
    Caller(SimulatedDriver* the_driver, bool* flag) : driver(the_driver), released(flag) {}
    SimulatedDriver* driver;
    bool* released;
    ~Caller() {
      *released = driver->virtual_time() == 0ns;  // takes the lock
    }
  };
  bool released = false;
  const StreamHandle stream = ready.driver.create_stream();
  ready.driver.launch(stream, {}, {}, 0ns,
                      [caller = std::make_shared<Caller>(&ready.driver, &released)] { EXPECT_NE(caller, nullptr); });
  ready.driver.run_until_idle();
  EXPECT_TRUE(released);
}

TEST(SimulatedStreams, LongQueuesRunInReasonableSpace) {
  ReadyDriver ready;
  const StreamHandle stream = ready.driver.create_stream();
  const CUevent event = ready.create_event();
  int ran = 0;
  ready.driver.launch(stream, {}, {}, 1ms, [&] { ++ran; });
  for (int i = 0; i < 20000; ++i) {
    EXPECT_EQ(ready.api.event_record(event, stream), CUDA_SUCCESS);
    if (i % 2 == 0) ready.driver.launch(stream, {}, {}, 1ns, [&] { ++ran; });
  }
  EXPECT_EQ(ready.api.event_synchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(ran, 10001);
}

TEST(SimulatedStreams, ManyMarksCompleteInOneStep) {
  ReadyDriver ready;
  const StreamHandle stream = ready.driver.create_stream();
  ready.driver.occupy(stream, 1ms);
  std::vector<CUevent> events;
  for (int i = 0; i < 1000; ++i) {
    events.push_back(ready.create_event());
    EXPECT_EQ(ready.api.event_record(events.back(), stream), CUDA_SUCCESS);
  }
  EXPECT_EQ(ready.api.event_query(events.front()), CUDA_ERROR_NOT_READY);
  EXPECT_TRUE(ready.driver.step());
  EXPECT_FALSE(ready.driver.step());
  for (const CUevent event : events) EXPECT_EQ(ready.api.event_query(event), CUDA_SUCCESS);
}

TEST(SimulatedStreams, TheSameProgramRunsTheSameWayTwice) {
  const auto run = [] {
    ReadyDriver ready;
    std::vector<int> order;
    std::vector<StreamHandle> streams = {nullptr, ready.create_blocking_stream()};
    for (int i = 0; i < 4; ++i) streams.push_back(ready.driver.create_stream(0, -i));
    std::vector<CUevent> events;
    for (std::size_t i = 0; i < 200; ++i) {
      ready.note(streams[i * 7 % 6], order, static_cast<int>(i), std::chrono::microseconds(i * 13 % 17));
      events.push_back(ready.create_event());
      EXPECT_EQ(ready.api.event_record(events.back(), streams[i * 5 % 6]), CUDA_SUCCESS);
      EXPECT_EQ(ready.api.stream_wait_event(streams[i * 11 % 6], events[i / 2], 0), CUDA_SUCCESS);
      if (i % 16 == 0) ready.driver.step();
    }
    ready.driver.run_until_idle();
    EXPECT_EQ(order.size(), 200u);
    return std::make_pair(order, ready.driver.virtual_time());
  };
  EXPECT_EQ(run(), run());
}

TEST(SimulatedStreams, StreamsOfAnotherDriverAreUnknown) {
  ReadyDriver one;
  ReadyDriver other;
  const StreamHandle stream = one.driver.create_stream();
  const StreamHandle same_slot = other.driver.create_stream();
  EXPECT_NE(stream, same_slot);
  EXPECT_EQ(other.api.stream_query(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THROW(other.driver.occupy(stream, 1ms), InvalidArgument);
}

}  // namespace
}  // namespace cistern
