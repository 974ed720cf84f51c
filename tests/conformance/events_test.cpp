// Events: what a record captures, what a wait waits for, time.

#include "tests/conformance/driver_case.h"

namespace cistern::conformance {
namespace {

class Events : public DriverCase {};

STATEMENT(C039, Events, AnEventThatWasNeverRecordedIsDone, "Driver API, Event Management, cuEventRecord",
          "Before its first record an event stands for no work: a query answers `CUDA_SUCCESS`.") {
  EXPECT_OK(api.event_query(make_event()));
}

STATEMENT(C040, Events, SynchronizingWithANeverRecordedEventReturns, "Driver API, Event Management, cuEventSynchronize",
          "Synchronising with an event that was never recorded returns at once, whatever streams do.") {
  const CUevent event = make_event();
  Gate& gate = hold(make_stream());
  EXPECT_OK(api.event_synchronize(event));
  gate.open();
}

STATEMENT(C041, Events, WaitingForANeverRecordedEventHoldsNothing, "Driver API, Event Management, cuEventRecord",
          "A stream's wait for an event that was never recorded holds up nothing.") {
  const CUstream stream = make_stream();
  wait(stream, make_event());
  note(stream, 1);
  finish(stream);
  EXPECT_EQ(log.numbers(), std::vector<int>{1});
}

STATEMENT(
    C042, Events, AnEventIsDoneWhenTheWorkBeforeItIs, "Driver API, Event Management, cuEventQuery",
    "An event is `CUDA_ERROR_NOT_READY` while work that it captured is incomplete, and `CUDA_SUCCESS` afterwards.") {
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  Gate& gate = hold(stream);
  record(event, stream);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.event_query(event));
  gate.open();
  EXPECT_OK(api.event_synchronize(event));
  EXPECT_OK(api.event_query(event));
}

STATEMENT(C043, Events, LaterWorkDoesNotChangeTheEvent, "Driver API, Event Management, cuEventRecord",
          "Uses of the stream after the record do not modify the event.") {
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  note(stream, 1);
  record(event, stream);
  EXPECT_OK(api.event_synchronize(event));
  Gate& gate = hold(stream);
  EXPECT_OK(api.event_query(event));
  gate.open();
}

STATEMENT(C044, Events, SynchronizeWaitsForWhatWasCaptured, "Driver API, Event Management, cuEventSynchronize",
          "cuEventSynchronize returns when the work that the event captured has completed.") {
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  for (int i = 0; i < 20; ++i) note(stream, i);
  record(event, stream);
  EXPECT_OK(api.event_synchronize(event));
  EXPECT_EQ(log.numbers().size(), 20u);
}

STATEMENT(C045, Events, ABlockingEventWaitsToo, "Driver API, Event Management, cuEventCreate",
          "An event made with CU_EVENT_BLOCKING_SYNC blocks the thread until it is recorded and done.") {
  const CUstream stream = make_stream();
  const CUevent event = make_event(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
  note(stream, 1);
  record(event, stream);
  EXPECT_OK(api.event_synchronize(event));
  EXPECT_EQ(log.numbers(), std::vector<int>{1});
}

STATEMENT(C046, Events, ARecordOverwritesTheOneBefore, "Driver API, Event Management, cuEventRecord",
          "A record replaces the state that was captured before: a query looks at the latest.") {
  const CUstream held = make_stream(), idle = make_stream();
  const CUevent event = make_event();
  Gate& gate = hold(held);
  record(event, held);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.event_query(event));
  record(event, idle);
  EXPECT_OK(api.event_synchronize(event));
  EXPECT_OK(api.event_query(event));
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(held));
  gate.open();
}

STATEMENT(C047, Events, AWaitUsesTheStateAtItsCall, "Driver API, Event Management, cuEventRecord",
          "A stream's wait is for the state that was captured when it was called; later records do not affect it.") {
  const CUstream idle = make_stream(), held = make_stream(), waiting = make_stream();
  const CUevent event = make_event();
  const CUdeviceptr memory = make_memory();
  record(event, idle);
  wait(waiting, event);
  Gate& gate = hold(held);
  record(event, held);
  fill(memory, 1, 4096, waiting);
  finish(waiting);
  EXPECT_TRUE(holds(memory, 4096, 1));
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.event_query(event));
  gate.open();
}

STATEMENT(C048, Events, AWaitIsNotShortenedByALaterRecord, "Driver API, Event Management, cuEventRecord",
          "A wait for work that is held up goes on although the event is recorded anew in an idle stream.") {
  const CUstream idle = make_stream(), held = make_stream(), waiting = make_stream();
  const CUevent event = make_event();
  Gate& gate = hold(held);
  record(event, held);
  wait(waiting, event);
  record(event, idle);
  EXPECT_OK(api.event_synchronize(event));
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(waiting));
  gate.open();
  finish(waiting);
  EXPECT_OK(api.stream_query(held));
}

STATEMENT(C049, Events, AWaitHoldsAllFutureWork, "Driver API, Stream Management, cuStreamWaitEvent",
          "All work submitted to a stream after its wait waits for the work that the event captured.") {
  const CUstream producer = make_stream(), consumer = make_stream();
  const CUevent event = make_event();
  const CUdeviceptr a = make_memory(), b = make_memory();
  Gate& gate = hold(producer);
  fill(a, 5, 4096, producer);
  record(event, producer);
  wait(consumer, event);
  copy(b, a, 4096, consumer);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(consumer));
  EXPECT_TRUE(holds(b, 4096, 0));
  gate.open();
  finish(consumer);
  EXPECT_TRUE(holds(b, 4096, 5));
}

STATEMENT(C050, Events, AWaitDoesNotHoldEarlierWork, "Driver API, Stream Management, cuStreamWaitEvent",
          "Work submitted before the wait does not wait.") {
  const CUstream producer = make_stream(), consumer = make_stream();
  const CUevent held = make_event(), before = make_event();
  const CUdeviceptr memory = make_memory();
  Gate& gate = hold(producer);
  record(held, producer);
  fill(memory, 2, 4096, consumer);
  record(before, consumer);
  wait(consumer, held);
  EXPECT_OK(api.event_synchronize(before));
  EXPECT_TRUE(holds(memory, 4096, 2));
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(consumer));
  gate.open();
}

STATEMENT(C051, Events, AWaitDoesNotHoldTheHost, "Driver API, Stream Management, cuStreamWaitEvent",
          "The wait happens on the device: the call returns while the event is pending.") {
  const CUstream producer = make_stream(), consumer = make_stream();
  const CUevent event = make_event();
  Gate& gate = hold(producer);
  record(event, producer);
  wait(consumer, event);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.event_query(event));
  gate.open();
}

STATEMENT(C052, Events, OrderIsTransitive, "Driver API, Stream Management, cuStreamWaitEvent",
          "Order by events carries through a chain of streams.") {
  const CUstream a = make_stream(), b = make_stream(), c = make_stream();
  const CUevent first = make_event(), second = make_event();
  Gate& gate = hold(a);
  note(a, 1);
  record(first, a);
  wait(b, first);
  note(b, 2);
  record(second, b);
  wait(c, second);
  note(c, 3);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(c));
  gate.open();
  finish(c);
  EXPECT_EQ(log.numbers(), (std::vector<int>{1, 2, 3}));
}

STATEMENT(C053, Events, AnEventCapturesWhatItsStreamWaitedFor, "Driver API, Event Management, cuEventRecord",
          "A record captures the stream's contents, waits included: an event behind a wait is done after what was "
          "waited for.") {
  const CUstream producer = make_stream(), relay = make_stream();
  const CUevent first = make_event(), second = make_event();
  Gate& gate = hold(producer);
  record(first, producer);
  wait(relay, first);
  record(second, relay);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.event_query(second));
  gate.open();
  EXPECT_OK(api.event_synchronize(second));
  EXPECT_OK(api.event_query(first));
}

STATEMENT(C054, Events, AStreamMayWaitForItsOwnEvent, "Driver API, Stream Management, cuStreamWaitEvent",
          "A stream that waits for an event of its own goes on.") {
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  note(stream, 1);
  record(event, stream);
  wait(stream, event);
  note(stream, 2);
  finish(stream);
  EXPECT_EQ(log.numbers(), (std::vector<int>{1, 2}));
}

STATEMENT(C055, Events, APendingEventMayBeDestroyed, "Driver API, Event Management, cuEventDestroy",
          "An event may be destroyed before it is complete; the call does not wait, and streams that wait for it keep "
          "waiting.") {
  const CUstream producer = make_stream(), consumer = make_stream();
  CUevent event = nullptr;
  ASSERT_OK(api.event_create(&event, CU_EVENT_DISABLE_TIMING));
  Gate& gate = hold(producer);
  record(event, producer);
  wait(consumer, event);
  EXPECT_OK(api.event_destroy(event));
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(producer));
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(consumer));
  gate.open();
  finish(consumer);
}

STATEMENT(C056, Events, ElapsedTimeNeedsBothRecords, "Driver API, Event Management, cuEventElapsedTime",
          "Where either event was never recorded, the elapsed time is `CUDA_ERROR_INVALID_HANDLE`.") {
  const CUstream stream = make_stream();
  const CUevent recorded = make_event(CU_EVENT_DEFAULT), never = make_event(CU_EVENT_DEFAULT);
  float milliseconds = 0;
  record(recorded, stream);
  finish(stream);
  EXPECT_RESULT(CUDA_ERROR_INVALID_HANDLE, api.event_elapsed_time(&milliseconds, recorded, never));
  EXPECT_RESULT(CUDA_ERROR_INVALID_HANDLE, api.event_elapsed_time(&milliseconds, never, recorded));
}

STATEMENT(C057, Events, ElapsedTimeIsNotReadyBeforeBothAreDone, "Driver API, Event Management, cuEventElapsedTime",
          "Where both were recorded and one is not complete, the elapsed time is `CUDA_ERROR_NOT_READY`.") {
  const CUstream stream = make_stream();
  const CUevent start = make_event(CU_EVENT_DEFAULT), end = make_event(CU_EVENT_DEFAULT);
  float milliseconds = 0;
  record(start, stream);
  finish(stream);
  Gate& gate = hold(stream);
  record(end, stream);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.event_elapsed_time(&milliseconds, start, end));
  gate.open();
  finish(stream);
  EXPECT_OK(api.event_elapsed_time(&milliseconds, start, end));
}

STATEMENT(C058, Events, ElapsedTimeNeedsTiming, "Driver API, Event Management, cuEventElapsedTime",
          "Where either event was created without timing, the elapsed time is `CUDA_ERROR_INVALID_HANDLE`.") {
  const CUstream stream = make_stream();
  const CUevent timed = make_event(CU_EVENT_DEFAULT), untimed = make_event(CU_EVENT_DISABLE_TIMING);
  float milliseconds = 0;
  record(timed, stream);
  record(untimed, stream);
  finish(stream);
  EXPECT_RESULT(CUDA_ERROR_INVALID_HANDLE, api.event_elapsed_time(&milliseconds, timed, untimed));
  EXPECT_RESULT(CUDA_ERROR_INVALID_HANDLE, api.event_elapsed_time(&milliseconds, untimed, timed));
}

STATEMENT(C059, Events, TimeDoesNotRunBackwards, "Driver API, Event Management, cuEventElapsedTime",
          "Between two records of one stream the elapsed time is not negative.") {
  const CUstream stream = make_stream();
  const CUevent start = make_event(CU_EVENT_DEFAULT), end = make_event(CU_EVENT_DEFAULT);
  float milliseconds = -1;
  record(start, stream);
  fill(make_memory(kMiB), 1, kMiB, stream);
  record(end, stream);
  finish(stream);
  EXPECT_OK(api.event_elapsed_time(&milliseconds, start, end));
  EXPECT_GE(milliseconds, 0.0F);
}

STATEMENT(C060, Events, UnknownFlagsAreRefused, "Driver API, Event Management, cuEventCreate",
          "Flags other than the documented ones are `CUDA_ERROR_INVALID_VALUE`.") {
  CUevent event = nullptr;
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.event_create(&event, 0x100));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.event_create(nullptr, 0));
}

STATEMENT(C061, Events, AnInterprocessEventHasNoTiming, "Driver API, Event Management, cuEventCreate",
          "CU_EVENT_INTERPROCESS must come with CU_EVENT_DISABLE_TIMING.") {
  CUevent event = nullptr;
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.event_create(&event, CU_EVENT_INTERPROCESS));
  EXPECT_OK(api.event_create(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  EXPECT_OK(api.event_destroy(event));
}

STATEMENT(C062, Events, CreationNeedsACurrentContext, "Driver API, Event Management, cuEventCreate",
          "Without a current context no event is created: `CUDA_ERROR_INVALID_CONTEXT`.") {
  CUevent event = nullptr;
  ASSERT_OK(api.ctx_set_current(nullptr));
  EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, api.event_create(&event, 0));
}

STATEMENT(C063, Events, ANullEventIsNoEvent, "Driver API, Stream Management, cuStreamWaitEvent",
          "The event of a record, query, wait, synchronisation or destruction may not be null: "
          "`CUDA_ERROR_INVALID_HANDLE`.") {
  const CUstream stream = make_stream();
  EXPECT_RESULT(CUDA_ERROR_INVALID_HANDLE, api.event_record(nullptr, stream));
  EXPECT_RESULT(CUDA_ERROR_INVALID_HANDLE, api.event_query(nullptr));
  EXPECT_RESULT(CUDA_ERROR_INVALID_HANDLE, api.stream_wait_event(stream, nullptr, 0));
  EXPECT_RESULT(CUDA_ERROR_INVALID_HANDLE, api.event_synchronize(nullptr));
  EXPECT_RESULT(CUDA_ERROR_INVALID_HANDLE, api.event_destroy(nullptr));
}

STATEMENT(
    C064, Events, AnExternalRecordIsForCaptureOnly, "Driver API, Event Management, cuEventRecordWithFlags",
    "CU_EVENT_RECORD_EXTERNAL is invalid outside of stream capture, and CU_EVENT_RECORD_DEFAULT is a plain record.") {
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  EXPECT_NE(api.event_record_with_flags(event, stream, CU_EVENT_RECORD_EXTERNAL), CUDA_SUCCESS);
  Gate& gate = hold(stream);
  EXPECT_OK(api.event_record_with_flags(event, stream, CU_EVENT_RECORD_DEFAULT));
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.event_query(event));
  gate.open();
}

STATEMENT(C065, Events, AnExternalWaitIsForCaptureOnly, "Driver API, Stream Management, cuStreamWaitEvent",
          "CU_EVENT_WAIT_EXTERNAL is invalid outside of stream capture.") {
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  EXPECT_NE(api.stream_wait_event(stream, event, CU_EVENT_WAIT_EXTERNAL), CUDA_SUCCESS);
}

STATEMENT(C066, Events, ARecordNeedsOneContext, "Driver API, Event Management, cuEventRecord",
          "Event and stream of a record must be of one context, else it is `CUDA_ERROR_INVALID_HANDLE`.") {
  REQUIRE_TWO_DEVICES();
  const CUstream stream = make_stream();
  ASSERT_OK(api.ctx_set_current(second_context()));
  const CUevent event = make_event();
  EXPECT_RESULT(CUDA_ERROR_INVALID_HANDLE, api.event_record(event, stream));
  EXPECT_OK(api.event_query(event));
}

STATEMENT(C067, Events, AWaitMayCrossDevices, "Driver API, Stream Management, cuStreamWaitEvent",
          "The event of a wait may be of another context or device than the stream.") {
  REQUIRE_TWO_DEVICES();
  const CUstream here = make_stream();
  ASSERT_OK(api.ctx_set_current(second_context()));
  const CUstream there = make_stream();
  const CUevent event = make_event();
  Gate& gate = hold(there);
  record(event, there);
  wait(here, event);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(here));
  gate.open();
  finish(here);
  EXPECT_OK(api.event_query(event));
}

STATEMENT(C068, Events, ElapsedTimeNeedsOneContext, "Programming Guide, Multi-Device System, Stream and Event Behavior",
          "The elapsed time between events of different devices is an error.") {
  REQUIRE_TWO_DEVICES();
  const CUstream here = make_stream();
  const CUevent start = make_event(CU_EVENT_DEFAULT);
  record(start, here);
  finish(here);
  ASSERT_OK(api.ctx_set_current(second_context()));
  const CUstream there = make_stream();
  const CUevent end = make_event(CU_EVENT_DEFAULT);
  record(end, there);
  finish(there);
  float milliseconds = 0;
  EXPECT_RESULT(CUDA_ERROR_INVALID_HANDLE, api.event_elapsed_time(&milliseconds, start, end));
}

}  // namespace
}  // namespace cistern::conformance
