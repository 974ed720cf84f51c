#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

TEST(SimulatedEvents, CompletesWithTheWorkBeforeIt) {
  ReadyDriver ready;
  const StreamHandle stream = ready.driver.create_stream();
  const CUevent event = ready.create_event();
  ready.driver.occupy(stream, 1ms);
  EXPECT_EQ(ready.api.event_record(event, stream), CUDA_SUCCESS);
  ready.driver.occupy(stream, 1ms);
  EXPECT_EQ(ready.api.event_query(event), CUDA_ERROR_NOT_READY);
  EXPECT_TRUE(ready.driver.step());
  EXPECT_EQ(ready.api.event_query(event), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_query(stream), CUDA_ERROR_NOT_READY);
}

TEST(SimulatedEvents, IsCompleteAtOnceOnAnIdleStreamAndBeforeItsFirstRecord) {
  ReadyDriver ready;
  const CUevent event = ready.create_event();
  EXPECT_EQ(ready.api.event_query(event), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_synchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_record(event, ready.driver.create_stream()), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_query(event), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.host_synchronizations(), 0u);
}

TEST(SimulatedEvents, OrderOneStreamBehindAnother) {
  ReadyDriver ready;
  std::vector<int> order;
  const StreamHandle producer = ready.driver.create_stream(0, 0);
  const StreamHandle consumer = ready.driver.create_stream(0, -5);
  const CUevent event = ready.create_event();
  ready.note(producer, order, 1, 5ms);
  EXPECT_EQ(ready.api.event_record(event, producer), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_wait_event(consumer, event, 0), CUDA_SUCCESS);
  ready.note(consumer, order, 2);
  EXPECT_EQ(ready.api.stream_synchronize(consumer), CUDA_SUCCESS);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(ready.driver.virtual_time(), 5ms);
}

TEST(SimulatedEvents, RecordingAgainLeavesEarlierWaitsAsTheyWere) {
  ReadyDriver ready;
  std::vector<int> order;
  const StreamHandle first = ready.driver.create_stream();
  const StreamHandle second = ready.driver.create_stream();
  const StreamHandle waiter = ready.driver.create_stream();
  const StreamHandle later_waiter = ready.driver.create_stream();
  const CUevent event = ready.create_event();
  ready.note(first, order, 1);
  ready.note(second, order, 2);
  EXPECT_EQ(ready.api.event_record(event, first), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_wait_event(waiter, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_record(event, second), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_wait_event(later_waiter, event, 0), CUDA_SUCCESS);
  ready.note(waiter, order, 3);
  ready.note(later_waiter, order, 4);

  ready.driver.run_until_idle(waiter);
  EXPECT_EQ(order, (std::vector<int>{1, 3}));
  EXPECT_EQ(ready.api.event_query(event), CUDA_ERROR_NOT_READY);
  ready.driver.run_until_idle(later_waiter);
  EXPECT_EQ(order, (std::vector<int>{1, 3, 2, 4}));
  EXPECT_EQ(ready.api.event_query(event), CUDA_SUCCESS);
}

TEST(SimulatedEvents, DestroyingAPendingEventLeavesWaitsInForce) {
  ReadyDriver ready;
  std::vector<int> order;
  const StreamHandle producer = ready.driver.create_stream();
  const StreamHandle consumer = ready.driver.create_stream();
  const CUevent event = ready.create_event();
  ready.note(producer, order, 1);
  EXPECT_EQ(ready.api.event_record(event, producer), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_wait_event(consumer, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_destroy(event), CUDA_SUCCESS);
  const CUevent in_its_place = ready.create_event();
  ready.note(consumer, order, 2);
  ready.driver.run_until_idle(consumer);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(ready.api.event_query(in_its_place), CUDA_SUCCESS);
}

TEST(SimulatedEvents, ADestroyedEventsRecordDoesNotCompleteTheOneInItsPlace) {
  ReadyDriver ready;
  const StreamHandle first = ready.driver.create_stream();
  const StreamHandle second = ready.driver.create_stream();
  const CUevent event = ready.create_event();
  ready.driver.occupy(first, 1ms);
  ready.driver.occupy(second, 1ms);
  EXPECT_EQ(ready.api.event_record(event, first), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_destroy(event), CUDA_SUCCESS);
  const CUevent in_its_place = ready.create_event();
  EXPECT_EQ(ready.api.event_record(in_its_place, second), CUDA_SUCCESS);
  ready.driver.run_until_idle(first);
  EXPECT_EQ(ready.api.event_query(in_its_place), CUDA_ERROR_NOT_READY);
  ready.driver.run_until_idle(second);
  EXPECT_EQ(ready.api.event_query(in_its_place), CUDA_SUCCESS);
}

TEST(SimulatedEvents, WaitingForAnEventThatWasNeverRecordedIsNothing) {
  ReadyDriver ready;
  const StreamHandle stream = ready.driver.create_stream();
  EXPECT_EQ(ready.api.stream_wait_event(stream, ready.create_event(), 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_query(stream), CUDA_SUCCESS);
}

TEST(SimulatedEvents, AnEventOnTheLegacyStreamCoversBlockingStreams) {
  ReadyDriver ready;
  const CUevent event = ready.create_event();
  ready.driver.occupy(ready.create_blocking_stream(), 1ms);
  EXPECT_EQ(ready.api.event_record(event, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_query(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(ready.api.event_synchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.virtual_time(), 1ms);
}

TEST(SimulatedEvents, AnyCompletionOrderCanBeStepped) {
  std::vector<std::size_t> completion = {0, 1, 2, 3};
  do {
    ReadyDriver ready;
    std::vector<StreamHandle> streams;
    std::vector<CUevent> events;
    for (std::size_t i = 0; i < completion.size(); ++i) {
      streams.push_back(ready.driver.create_stream());
      events.push_back(ready.create_event());
      ready.driver.occupy(streams[i], 1ms);
      EXPECT_EQ(ready.api.event_record(events[i], streams[i]), CUDA_SUCCESS);
    }
    std::vector<bool> done(completion.size(), false);
    for (const std::size_t next : completion) {
      EXPECT_TRUE(ready.driver.step(streams[next]));
      done[next] = true;
      for (std::size_t i = 0; i < events.size(); ++i) {
        EXPECT_EQ(ready.api.event_query(events[i]), done[i] ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
      }
    }
  } while (std::next_permutation(completion.begin(), completion.end()));
}

TEST(SimulatedEvents, ElapsedTimeIsVirtual) {
  ReadyDriver ready;
  const StreamHandle stream = ready.driver.create_stream();
  const CUevent start = ready.create_event();
  const CUevent end = ready.create_event();
  EXPECT_EQ(ready.api.event_record(start, stream), CUDA_SUCCESS);
  ready.driver.occupy(stream, 1500us);
  EXPECT_EQ(ready.api.event_record(end, stream), CUDA_SUCCESS);
  float elapsed = 0;
  EXPECT_EQ(ready.api.event_elapsed_time(&elapsed, start, end), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(ready.api.event_synchronize(end), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_elapsed_time(&elapsed, start, end), CUDA_SUCCESS);
  EXPECT_FLOAT_EQ(elapsed, 1.5F);
}

TEST(SimulatedEvents, WorkQueuedAfterAWaitStartsAfterIt) {
  ReadyDriver ready;
  const StreamHandle first = ready.driver.create_stream();
  const StreamHandle second = ready.driver.create_stream();
  const CUevent start = ready.create_event();
  const CUevent end = ready.create_event();
  EXPECT_EQ(ready.api.event_record(start, second), CUDA_SUCCESS);
  ready.driver.occupy(first, 4ms);
  EXPECT_EQ(ready.api.stream_synchronize(first), CUDA_SUCCESS);
  ready.driver.occupy(second, 1ms);
  EXPECT_EQ(ready.api.event_record(end, second), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_synchronize(end), CUDA_SUCCESS);
  float elapsed = 0;
  EXPECT_EQ(ready.api.event_elapsed_time(&elapsed, start, end), CUDA_SUCCESS);
  EXPECT_FLOAT_EQ(elapsed, 5.0F);
}

TEST(SimulatedEvents, ElapsedTimeNeedsTwoTimedRecordedEventsOfOneDevice) {
  ReadyDriver ready({.devices = 2, .capacity_bytes = 16 * MiB});
  const CUevent timed = ready.create_event();
  const CUevent untimed = ready.create_event(CU_EVENT_DISABLE_TIMING);
  const CUevent unrecorded = ready.create_event();
  ready.use(1);
  const CUevent elsewhere = ready.create_event();
  EXPECT_EQ(ready.api.event_record(elsewhere, nullptr), CUDA_SUCCESS);
  ready.use(0);
  EXPECT_EQ(ready.api.event_record(timed, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_record(untimed, nullptr), CUDA_SUCCESS);
  float elapsed = 0;
  EXPECT_EQ(ready.api.event_elapsed_time(&elapsed, timed, timed), CUDA_SUCCESS);
  for (const CUevent other : {untimed, unrecorded, elsewhere}) {
    EXPECT_EQ(ready.api.event_elapsed_time(&elapsed, timed, other), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(ready.api.event_elapsed_time(&elapsed, other, timed), CUDA_ERROR_INVALID_HANDLE);
  }
  EXPECT_EQ(ready.api.event_elapsed_time(nullptr, timed, timed), CUDA_ERROR_INVALID_VALUE);
}

TEST(SimulatedEvents, OnlyStreamsOfItsDeviceRecordItButAnyWaits) {
  ReadyDriver ready({.devices = 2, .capacity_bytes = 16 * MiB});
  std::vector<int> order;
  const StreamHandle here = ready.driver.create_stream(0);
  const StreamHandle there = ready.driver.create_stream(1);
  const CUevent event = ready.create_event();
  EXPECT_EQ(ready.api.event_record(event, there), CUDA_ERROR_INVALID_HANDLE);
  ready.note(here, order, 1);
  EXPECT_EQ(ready.api.event_record(event, here), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_wait_event(there, event, 0), CUDA_SUCCESS);
  ready.note(there, order, 2);
  EXPECT_EQ(ready.api.stream_synchronize(there), CUDA_SUCCESS);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(SimulatedEvents, UseOfADestroyedEventIsAnErrorAndNoCrash) {
  ReadyDriver ready;
  const StreamHandle stream = ready.driver.create_stream();
  const CUevent event = ready.create_event();
  EXPECT_EQ(ready.api.event_destroy(event), CUDA_SUCCESS);
  ready.create_event();  // in its slot
  for (const CUevent stale : {event, CUevent{nullptr}, reinterpret_cast<CUevent>(std::uintptr_t{0xdeadbeef})}) {
    EXPECT_EQ(ready.api.event_query(stale), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(ready.api.event_record(stale, stream), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(ready.api.event_synchronize(stale), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(ready.api.stream_wait_event(stream, stale, 0), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(ready.api.event_destroy(stale), CUDA_ERROR_INVALID_HANDLE);
  }
}

TEST(SimulatedEvents, FlagsAreCheckedAsTheDriverDoes) {
  ReadyDriver ready;
  CUevent event = nullptr;
  EXPECT_EQ(ready.api.event_create(&event, 0x80), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.event_create(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.event_create(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_create(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.stream_wait_event(nullptr, event, 8), CUDA_ERROR_INVALID_VALUE);
}

TEST(SimulatedEvents, OnlyWaitsThatWaitAreCounted) {
  ReadyDriver ready;
  const StreamHandle busy = ready.driver.create_stream();
  const StreamHandle idle = ready.driver.create_stream();
  const CUevent event = ready.create_event();
  ready.driver.occupy(busy, 1ms);
  EXPECT_EQ(ready.api.event_record(event, busy), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_synchronize(idle), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_wait_event(idle, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.host_synchronizations(), 0u);
  EXPECT_EQ(ready.api.event_synchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_synchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.host_synchronizations(), 1u);
  ready.driver.occupy(busy, 1ms);
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.host_synchronizations(), 2u);
}

}  // namespace
}  // namespace cistern
