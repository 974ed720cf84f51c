// The default streams: who waits for whom.

#include <thread>

#include "tests/conformance/driver_case.h"

namespace cistern::conformance {
namespace {

class DefaultStreams : public DriverCase {};

#define SECTION "Driver API, Stream synchronization behavior, "

STATEMENT(C027, DefaultStreams, LegacyWorkWaitsForBlockingStreams, SECTION "Legacy default stream",
          "Work in the legacy stream waits for what blocking streams have been given before.") {
  const CUstream blocking = make_stream(CU_STREAM_DEFAULT);
  const CUdeviceptr memory = make_memory();
  Gate& gate = hold(blocking);
  fill(memory, 1, 4096, nullptr);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(nullptr));
  EXPECT_TRUE(holds(memory, 4096, 0));
  gate.open();
  finish(nullptr);
  EXPECT_TRUE(holds(memory, 4096, 1));
  EXPECT_OK(api.stream_query(blocking));
}

STATEMENT(C028, DefaultStreams, BlockingStreamsWaitForLegacyWork, SECTION "Legacy default stream",
          "Work given to a blocking stream later waits for the legacy stream's.") {
  const CUstream blocking = make_stream(CU_STREAM_DEFAULT);
  const CUdeviceptr memory = make_memory();
  Gate& gate = hold(nullptr);
  fill(memory, 1, 4096, blocking);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(blocking));
  EXPECT_TRUE(holds(memory, 4096, 0));
  gate.open();
  finish(blocking);
  EXPECT_TRUE(holds(memory, 4096, 1));
}

STATEMENT(C029, DefaultStreams, TheExampleOfThreeKernelsRunsInOrder, SECTION "Legacy default stream",
          "Of work in a blocking stream, then in the legacy stream, then in the blocking stream, each waits for the "
          "one before.") {
  const CUstream blocking = make_stream(CU_STREAM_DEFAULT);
  Gate& gate = hold(blocking);
  note(blocking, 1);
  note(nullptr, 2);
  note(blocking, 3);
  gate.open();
  finish(blocking);
  EXPECT_EQ(log.numbers(), (std::vector<int>{1, 2, 3}));
}

STATEMENT(C030, DefaultStreams, LegacyLeavesNonBlockingStreamsAlone, SECTION "Legacy default stream",
          "The legacy stream does not wait for non-blocking streams.") {
  const CUstream non_blocking = make_stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr memory = make_memory();
  Gate& gate = hold(non_blocking);
  fill(memory, 1, 4096, nullptr);
  finish(nullptr);
  EXPECT_TRUE(holds(memory, 4096, 1));
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(non_blocking));
  gate.open();
}

STATEMENT(C031, DefaultStreams, NonBlockingStreamsDoNotWaitForLegacy, SECTION "Legacy default stream",
          "Non-blocking streams do not wait for the legacy stream.") {
  const CUstream non_blocking = make_stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr memory = make_memory();
  Gate& gate = hold(nullptr);
  fill(memory, 1, 4096, non_blocking);
  finish(non_blocking);
  EXPECT_TRUE(holds(memory, 4096, 1));
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(nullptr));
  gate.open();
}

STATEMENT(C032, DefaultStreams, HandleZeroIsTheLegacyStream, SECTION "Default stream",
          "Handle 0 and CU_STREAM_LEGACY are one stream.") {
  Gate& gate = hold(CU_STREAM_LEGACY);
  note(nullptr, 1);
  note(CU_STREAM_LEGACY, 2);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(nullptr));
  gate.open();
  finish(nullptr);
  EXPECT_EQ(log.numbers(), (std::vector<int>{1, 2}));
}

STATEMENT(
    C033, DefaultStreams, AWaitInLegacyHoldsUpBlockingStreams, SECTION "Legacy default stream",
    "An event wait in the legacy stream is an action like any other: later work of blocking streams waits for it.") {
  const CUstream other = make_stream(CU_STREAM_NON_BLOCKING), blocking = make_stream(CU_STREAM_DEFAULT);
  const CUevent event = make_event();
  const CUdeviceptr memory = make_memory();
  Gate& gate = hold(other);
  record(event, other);
  wait(nullptr, event);
  fill(memory, 1, 4096, blocking);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(blocking));
  EXPECT_TRUE(holds(memory, 4096, 0));
  gate.open();
  finish(blocking);
  EXPECT_TRUE(holds(memory, 4096, 1));
}

STATEMENT(C034, DefaultStreams, ARecordInLegacyCapturesBlockingStreams, SECTION "Legacy default stream",
          "An event recorded in the legacy stream is done when the earlier work of blocking streams is, too.") {
  const CUstream blocking = make_stream(CU_STREAM_DEFAULT);
  const CUevent event = make_event();
  Gate& gate = hold(blocking);
  record(event, nullptr);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.event_query(event));
  gate.open();
  EXPECT_OK(api.event_synchronize(event));
  EXPECT_OK(api.stream_query(blocking));
}

STATEMENT(C035, DefaultStreams, SynchronizingLegacyWaitsForBlockingStreams, SECTION "Legacy default stream",
          "Synchronising with the legacy stream waits for the work of blocking streams.") {
  const CUstream one = make_stream(CU_STREAM_DEFAULT), other = make_stream(CU_STREAM_DEFAULT);
  note(one, 1);
  note(other, 1);
  finish(nullptr);
  EXPECT_EQ(log.numbers(), (std::vector<int>{1, 1}));
}

STATEMENT(C036, DefaultStreams, PerThreadDoesNotSynchronizeWithOthers, SECTION "Per-thread default stream",
          "The per-thread default stream does not synchronise with other streams, just as an explicitly created one.") {
  const CUstream blocking = make_stream(CU_STREAM_DEFAULT);
  const CUdeviceptr memory = make_memory();
  Gate& gate = hold(blocking);
  fill(memory, 1, 4096, CU_STREAM_PER_THREAD);
  finish(CU_STREAM_PER_THREAD);
  EXPECT_TRUE(holds(memory, 4096, 1));
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(blocking));
  gate.open();
}

STATEMENT(C037, DefaultStreams, PerThreadIsNoNonBlockingStream, SECTION "Per-thread default stream",
          "The per-thread default stream synchronises with the legacy stream when both are used.") {
  const CUdeviceptr memory = make_memory();
  Gate& gate = hold(CU_STREAM_PER_THREAD);
  fill(memory, 1, 4096, nullptr);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(nullptr));
  note(CU_STREAM_PER_THREAD, 1);
  EXPECT_TRUE(holds(memory, 4096, 0));
  gate.open();
  finish(CU_STREAM_PER_THREAD);
  EXPECT_TRUE(holds(memory, 4096, 1));
}

STATEMENT(
    C038, DefaultStreams, EachThreadHasItsOwn, SECTION "Per-thread default stream",
    "The per-thread default stream is local to the thread: one that is held up does not hold up another thread's.") {
  unsigned long long mine = 0, theirs = 0;
  EXPECT_OK(api.stream_get_id(CU_STREAM_PER_THREAD, &mine));
  const CUdeviceptr memory = make_memory();
  Gate& gate = hold(CU_STREAM_PER_THREAD);
  std::thread([&] {
    EXPECT_OK(api.ctx_set_current(context));
    EXPECT_OK(api.stream_get_id(CU_STREAM_PER_THREAD, &theirs));
    fill(memory, 1, 4096, CU_STREAM_PER_THREAD);
    finish(CU_STREAM_PER_THREAD);
  }).join();
  EXPECT_TRUE(holds(memory, 4096, 1));
  EXPECT_NE(mine, theirs);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(CU_STREAM_PER_THREAD));
  gate.open();
}

#undef SECTION

}  // namespace
}  // namespace cistern::conformance
