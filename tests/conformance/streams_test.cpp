// Streams: order, completion, attributes, callbacks.

#include <set>
#include <utility>

#include "tests/conformance/driver_case.h"

namespace cistern::conformance {
namespace {

class Streams : public DriverCase {};

STATEMENT(C001, Streams, AnIdleStreamIsDone, "Driver API, Stream Management, cuStreamQuery",
          "A stream whose operations have all completed answers `CUDA_SUCCESS`.") {
  const CUstream stream = make_stream();
  EXPECT_OK(api.stream_query(stream));
  fill(make_memory(), 1, 4096, stream);
  finish(stream);
  EXPECT_OK(api.stream_query(stream));
}

STATEMENT(C002, Streams, AStreamWithUnfinishedWorkIsNotReady, "Driver API, Stream Management, cuStreamQuery",
          "A stream with an operation that has not completed answers `CUDA_ERROR_NOT_READY`.") {
  const CUstream stream = make_stream();
  Gate& gate = hold(stream);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(stream));
  gate.open();
  finish(stream);
  EXPECT_OK(api.stream_query(stream));
}

STATEMENT(C003, Streams, WorkOfOneStreamRunsInOrder, "Programming Guide, Asynchronous Concurrent Execution, Streams",
          "Operations of one stream execute in the order in which they were issued.") {
  const CUstream stream = make_stream();
  const CUdeviceptr a = make_memory(), b = make_memory();
  fill(a, 1, 4096, stream);
  note(stream, 1);
  copy(b, a, 4096, stream);
  fill(a, 2, 4096, stream);
  note(stream, 2);
  note(stream, 3);
  finish(stream);
  EXPECT_TRUE(holds(b, 4096, 1));
  EXPECT_TRUE(holds(a, 4096, 2));
  EXPECT_EQ(log.numbers(), (std::vector<int>{1, 2, 3}));
}

STATEMENT(C004, Streams, AHostFunctionRunsAfterEarlierWork, "Driver API, Execution Control, cuLaunchHostFunc",
          "A host function is called after the work that was enqueued before it.") {
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  std::pair<unsigned char, unsigned char> bytes{0, 0};  // what was copied, what the function found there
  fill(memory, 7, 1, stream);
  copy(reinterpret_cast<CUdeviceptr>(&bytes.first), memory, 1, stream);
  const auto look = [](void* data) {
    auto& found = *static_cast<std::pair<unsigned char, unsigned char>*>(data);
    found.second = found.first;
  };
  EXPECT_OK(api.launch_host_func(stream, look, &bytes));
  finish(stream);
  EXPECT_EQ(bytes.second, 7);
}

STATEMENT(C005, Streams, AHostFunctionBlocksLaterWork, "Driver API, Execution Control, cuLaunchHostFunc",
          "A host function holds up the work that is added to the stream after it.") {
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  Gate& gate = hold(stream);
  fill(memory, 9, 4096, stream);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(stream));
  EXPECT_TRUE(holds(memory, 4096, 0));
  gate.open();
  finish(stream);
  EXPECT_TRUE(holds(memory, 4096, 9));
}

STATEMENT(
    C006, Streams, StreamsAreIndependent, "Programming Guide, Asynchronous Concurrent Execution, Streams",
    "Different streams may execute their operations out of order with respect to one another: one that is held up "
    "does not hold up another.") {
  const CUstream held = make_stream(), other = make_stream();
  const CUdeviceptr memory = make_memory();
  Gate& gate = hold(held);
  fill(memory, 3, 4096, other);
  finish(other);
  EXPECT_TRUE(holds(memory, 4096, 3));
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(held));
  gate.open();
}

STATEMENT(C007, Streams, SynchronizeWaitsForAllOfTheStream, "Driver API, Stream Management, cuStreamSynchronize",
          "cuStreamSynchronize returns when the stream has completed all its operations.") {
  const CUstream stream = make_stream();
  for (int i = 0; i < 50; ++i) note(stream, i);
  finish(stream);
  EXPECT_EQ(log.numbers().size(), 50u);
  EXPECT_OK(api.stream_query(stream));
}

STATEMENT(C008, Streams, DestroyReturnsAtOnceAndTheWorkCompletes, "Driver API, Stream Management, cuStreamDestroy",
          "Destroying a stream that still has work returns at once, and the work completes.") {
  CUstream stream = nullptr;
  ASSERT_OK(api.stream_create_with_priority(&stream, CU_STREAM_NON_BLOCKING, 0));
  Gate& gate = hold(stream);
  note(stream, 1);
  EXPECT_OK(api.stream_destroy(stream));
  EXPECT_TRUE(log.numbers().empty());
  gate.open();
  EXPECT_OK(api.ctx_synchronize());
  EXPECT_EQ(log.numbers(), std::vector<int>{1});
}

STATEMENT(C009, Streams, ThePriorityRangeRunsFromGreatestToLeast,
          "Driver API, Context Management, cuCtxGetStreamPriorityRange",
          "Meaningful priorities are greatest to least, lower numbers being greater priorities, and 0, the default, is "
          "one.") {
  int least = -1, greatest = 1;
  EXPECT_OK(api.ctx_get_stream_priority_range(&least, &greatest));
  EXPECT_LE(greatest, 0);
  EXPECT_GE(least, 0);
}

STATEMENT(C010, Streams, EitherEndOfTheRangeMayBeLeftOut, "Driver API, Context Management, cuCtxGetStreamPriorityRange",
          "A null pointer is accepted for either end of the range.") {
  int value = 0;
  EXPECT_OK(api.ctx_get_stream_priority_range(nullptr, &value));
  EXPECT_OK(api.ctx_get_stream_priority_range(&value, nullptr));
  EXPECT_OK(api.ctx_get_stream_priority_range(nullptr, nullptr));
}

STATEMENT(C011, Streams, PrioritiesAreClamped, "Driver API, Stream Management, cuStreamCreateWithPriority",
          "A priority outside the range is clamped to it, and cuStreamGetPriority returns the clamped one.") {
  int least = 0, greatest = 0, came = 99;
  ASSERT_OK(api.ctx_get_stream_priority_range(&least, &greatest));
  EXPECT_OK(api.stream_get_priority(make_stream(CU_STREAM_NON_BLOCKING, greatest - 10), &came));
  EXPECT_EQ(came, greatest);
  EXPECT_OK(api.stream_get_priority(make_stream(CU_STREAM_NON_BLOCKING, least + 10), &came));
  EXPECT_EQ(came, least);
}

STATEMENT(C012, Streams, APriorityInTheRangeIsKept, "Driver API, Stream Management, cuStreamGetPriority",
          "A stream has the priority that it was created with.") {
  int least = 0, greatest = 0;
  ASSERT_OK(api.ctx_get_stream_priority_range(&least, &greatest));
  for (int priority = greatest; priority <= least; ++priority) {
    int came = 99;
    EXPECT_OK(api.stream_get_priority(make_stream(CU_STREAM_DEFAULT, priority), &came));
    EXPECT_EQ(came, priority);
  }
}

STATEMENT(C013, Streams, FlagsAreThoseOfTheCreation, "Driver API, Stream Management, cuStreamGetFlags",
          "cuStreamGetFlags returns the flags that the stream was created with.") {
  unsigned flags = 99;
  EXPECT_OK(api.stream_get_flags(make_stream(CU_STREAM_NON_BLOCKING), &flags));
  EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
  EXPECT_OK(api.stream_get_flags(make_stream(CU_STREAM_DEFAULT), &flags));
  EXPECT_EQ(flags, unsigned{CU_STREAM_DEFAULT});
}

STATEMENT(C014, Streams, UnknownFlagsAreRefused, "Driver API, Stream Management, cuStreamCreateWithPriority",
          "Flags other than the documented ones are `CUDA_ERROR_INVALID_VALUE`.") {
  CUstream stream = nullptr;
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.stream_create_with_priority(&stream, 0x10, 0));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.stream_create_with_priority(nullptr, 0, 0));
}

STATEMENT(C015, Streams, IdsAreNeverUsedAgain, "Driver API, Stream Management, cuStreamGetId",
          "A stream's id is unique for the life of the program, whatever becomes of handles.") {
  std::set<unsigned long long> seen;
  for (int i = 0; i < 50; ++i) {
    CUstream stream = nullptr;
    unsigned long long id = 0;
    ASSERT_OK(api.stream_create_with_priority(&stream, 0, 0));
    EXPECT_OK(api.stream_get_id(stream, &id));
    EXPECT_OK(api.stream_destroy(stream));
    EXPECT_TRUE(seen.insert(id).second) << "id " << id << " came twice";
  }
}

STATEMENT(C016, Streams, TheDefaultStreamsHaveIds, "Driver API, Stream Management, cuStreamGetId",
          "The special handles have ids too: that of NULL is the legacy stream's, the per-thread stream has another.") {
  unsigned long long null = 0, legacy = 0, per_thread = 0;
  EXPECT_OK(api.stream_get_id(nullptr, &null));
  EXPECT_OK(api.stream_get_id(CU_STREAM_LEGACY, &legacy));
  EXPECT_OK(api.stream_get_id(CU_STREAM_PER_THREAD, &per_thread));
  EXPECT_EQ(null, legacy);
  EXPECT_NE(per_thread, legacy);
}

STATEMENT(
    C017, Streams, AStreamKnowsItsContext, "Driver API, Stream Management, cuStreamGetCtx",
    "A stream's context is the one that was current when it was created; a special handle's is the current one.") {
  CUcontext came = nullptr;
  EXPECT_OK(api.stream_get_ctx(make_stream(), &came));
  EXPECT_EQ(came, context);
  for (const CUstream special : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    came = nullptr;
    EXPECT_OK(api.stream_get_ctx(special, &came));
    EXPECT_EQ(came, context);
  }
}

STATEMENT(C018, Streams, SpecialHandlesNeedACurrentContext, "Driver API, Stream Management, cuStreamGetCtx",
          "Without a current context the special handles are `CUDA_ERROR_INVALID_CONTEXT`.") {
  CUcontext came = nullptr;
  ASSERT_OK(api.ctx_set_current(nullptr));
  EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, api.stream_get_ctx(nullptr, &came));
  EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, api.stream_get_ctx(CU_STREAM_LEGACY, &came));
  EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, api.stream_get_ctx(CU_STREAM_PER_THREAD, &came));
}

STATEMENT(C019, Streams, CreationNeedsACurrentContext, "Driver API, Stream Management, cuStreamCreateWithPriority",
          "Without a current context no stream is created: `CUDA_ERROR_INVALID_CONTEXT`.") {
  CUstream stream = nullptr;
  ASSERT_OK(api.ctx_set_current(nullptr));
  EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, api.stream_create_with_priority(&stream, 0, 0));
}

STATEMENT(
    C020, Streams, CtxSynchronizeWaitsForEveryStream, "Driver API, Context Management, cuCtxSynchronize",
    "cuCtxSynchronize returns when the context has completed all preceding tasks, those of non-blocking streams too.") {
  const CUstream one = make_stream(CU_STREAM_NON_BLOCKING), other = make_stream(CU_STREAM_DEFAULT);
  note(one, 1);
  note(other, 1);
  note(nullptr, 1);
  note(CU_STREAM_PER_THREAD, 1);
  EXPECT_OK(api.ctx_synchronize());
  EXPECT_EQ(log.numbers(), (std::vector<int>{1, 1, 1, 1}));
}

STATEMENT(C021, Streams, FillsReturnBeforeTheyRun, "Driver API, API synchronization behavior, Memset",
          "Asynchronous fills return before they are done.") {
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  Gate& gate = hold(stream);
  fill(memory, 1, 4096, stream);
  EXPECT_OK(api.memset_d32_async(memory, 2, 1024, stream));
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(stream));
  gate.open();
}

STATEMENT(C022, Streams, CopiesOnTheDeviceReturnBeforeTheyRun,
          "Driver API, API synchronization behavior, Memcpy, Asynchronous",
          "An asynchronous copy from device memory to device memory returns before it is done.") {
  const CUstream stream = make_stream();
  const CUdeviceptr from = make_memory(), to = make_memory();
  Gate& gate = hold(stream);
  fill(from, 8, 4096, stream);
  copy(to, from, 4096, stream);
  EXPECT_TRUE(holds(to, 4096, 0));
  gate.open();
  finish(stream);
  EXPECT_TRUE(holds(to, 4096, 8));
}

// --- Callbacks --------------------------------------------------------------------------

struct CallbackRecord {
  const DriverApi* api = nullptr;
  int calls = 0;
  CUstream stream = nullptr;
  CUresult status = CUDA_ERROR_UNKNOWN;
  CUresult inner = CUDA_SUCCESS;
};

void keep_record(CUstream stream, CUresult status, void* data) {
  CallbackRecord& record = *static_cast<CallbackRecord*>(data);
  ++record.calls;
  record.stream = stream;
  record.status = status;
  CUstream another = nullptr;
  record.inner = record.api->stream_create_with_priority(&another, 0, 0);
}

STATEMENT(
    C023, Streams, ACallbackRunsOnceWithItsStreamAndSuccess, "Driver API, Stream Management, cuStreamAddCallback",
    "A callback is executed exactly once, after what was enqueued before it, with its stream and `CUDA_SUCCESS`.") {
  const CUstream stream = make_stream();
  CallbackRecord record{&api};
  note(stream, 1);
  ASSERT_OK(api.stream_add_callback(stream, keep_record, &record, 0));
  note(stream, 2);
  finish(stream);
  EXPECT_EQ(record.calls, 1);
  EXPECT_EQ(record.stream, stream);
  EXPECT_RESULT(CUDA_SUCCESS, record.status);
  EXPECT_EQ(log.numbers(), (std::vector<int>{1, 2}));
}

STATEMENT(C024, Streams, ACallbackThatCallsTheDriverIsRefused, "Driver API, Stream Management, cuStreamAddCallback",
          "A driver call made by a callback is `CUDA_ERROR_NOT_PERMITTED`.") {
  const CUstream stream = make_stream();
  CallbackRecord record{&api};
  ASSERT_OK(api.stream_add_callback(stream, keep_record, &record, 0));
  finish(stream);
  EXPECT_RESULT(CUDA_ERROR_NOT_PERMITTED, record.inner);
}

STATEMENT(C025, Streams, ACallbackBlocksLaterWork, "Driver API, Stream Management, cuStreamAddCallback",
          "A callback holds up later work of its stream until it is finished.") {
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  Gate& gate = make_gate();
  const auto pass_gate = [](CUstream, CUresult, void* data) { static_cast<Gate*>(data)->pass(); };
  ASSERT_OK(api.stream_add_callback(stream, pass_gate, &gate, 0));
  fill(memory, 6, 4096, stream);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(stream));
  EXPECT_TRUE(holds(memory, 4096, 0));
  gate.open();
  finish(stream);
  EXPECT_TRUE(holds(memory, 4096, 6));
}

STATEMENT(C026, Streams, CallbackFlagsMustBeZero, "Driver API, Stream Management, cuStreamAddCallback",
          "The flags of a callback are reserved and must be 0.") {
  CallbackRecord record{&api};
  const CUstream stream = make_stream();
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.stream_add_callback(stream, keep_record, &record, 1));
  finish(stream);
  EXPECT_EQ(record.calls, 0);
}

}  // namespace
}  // namespace cistern::conformance
