// What capture forbids, and to whom: CUDA Driver API, "Stream Management"; CUDA C++ Programming
// Guide, "CUDA Graphs": "Prohibited and Unhandled Operations", "Invalidation".
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/simulated/capture_fixture.h"

#include <cistern/error.h>

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::KiB;
using cistern::testing::MiB;

constexpr CUstreamCaptureMode kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr CUstreamCaptureMode kThreadLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
constexpr CUstreamCaptureMode kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

class SimulatedCaptureErrors : public cistern::testing::CaptureTest {
 protected:
  CUresult exchange(CUstreamCaptureMode mode) { return api.thread_exchange_stream_capture_mode(&mode); }
  // On a thread of its own, in the mode.
  CUresult on_thread(CUstreamCaptureMode mode, const std::function<CUresult()>& call) {
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread([&] {
      ready.use(0);
      EXPECT_EQ(exchange(mode), CUDA_SUCCESS);
      result = call();
    }).join();
    return result;
  }
  CUresult allocate() {
    CUdeviceptr memory = 0;
    return api.mem_alloc(&memory, 1);
  }
};

// --- Beginning and ending ---------------------------------------------------------------

TEST_F(SimulatedCaptureErrors, TheLegacyStreamCannotBeCaptured) {
  EXPECT_EQ(api.stream_begin_capture(nullptr, kRelaxed), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(api.stream_begin_capture(CU_STREAM_LEGACY, kRelaxed), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(status(nullptr), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(SimulatedCaptureErrors, BeginningTwiceIsRefusedAndHarmsNothing) {
  begin(stream);
  note(stream, 1);
  EXPECT_EQ(api.stream_begin_capture(stream, kRelaxed), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(nodes(end(stream)).size(), 1u);
}

TEST_F(SimulatedCaptureErrors, AForkedStreamCannotBeginItsOwn) {
  begin(stream);
  depend(other, stream);
  EXPECT_EQ(api.stream_begin_capture(other, kRelaxed), CUDA_ERROR_ILLEGAL_STATE);
  expect_valid(stream);
}

TEST_F(SimulatedCaptureErrors, ArgumentsThatMeanNothingAreRefused) {
  CUgraph graph = nullptr;
  EXPECT_EQ(api.stream_begin_capture(stream, static_cast<CUstreamCaptureMode>(3)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.stream_is_capturing(stream, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.stream_get_capture_info(stream, nullptr, nullptr, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.thread_exchange_stream_capture_mode(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(exchange(static_cast<CUstreamCaptureMode>(3)), CUDA_ERROR_INVALID_VALUE);
  const CUstream gone = ready.driver.create_stream();
  EXPECT_EQ(api.stream_destroy(gone), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_begin_capture(gone, kRelaxed), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(api.stream_end_capture(gone, &graph), CUDA_ERROR_INVALID_HANDLE);
  begin(stream);
  EXPECT_EQ(api.stream_end_capture(stream, nullptr), CUDA_ERROR_INVALID_VALUE);
  expect_valid(stream);
}

TEST_F(SimulatedCaptureErrors, EndingWithoutBeginningIsRefused) {
  CUgraph graph = nullptr;
  EXPECT_EQ(api.stream_end_capture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(api.stream_end_capture(nullptr, &graph), CUDA_ERROR_ILLEGAL_STATE);
  begin(other);
  EXPECT_EQ(api.stream_end_capture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
  expect_valid(other);
}

TEST_F(SimulatedCaptureErrors, EndingOnAForkedStreamInvalidates) {
  begin(stream);
  depend(other, stream);
  CUgraph graph = nullptr;
  EXPECT_EQ(api.stream_end_capture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(status(other), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  expect_invalidated(stream);
  EXPECT_EQ(status(other), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(SimulatedCaptureErrors, OnlyARelaxedCaptureEndsOnAnotherThread) {
  for (const CUstreamCaptureMode mode : {kGlobal, kThreadLocal}) {
    begin(stream, mode);
    CUgraph graph = nullptr;
    EXPECT_EQ(on_thread(kGlobal, [&] { return api.stream_end_capture(stream, &graph); }),
              CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    EXPECT_EQ(graph, nullptr);
    expect_invalidated(stream);
  }
}

TEST_F(SimulatedCaptureErrors, AForkThatIsNotJoinedFailsTheWholeCapture) {
  begin(stream);
  depend(other, stream);
  note(other, 1);
  expect_end(stream, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(status(other), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(api.stream_synchronize(other), CUDA_SUCCESS);
  EXPECT_TRUE(order.empty());
}

TEST_F(SimulatedCaptureErrors, WorkAfterTheJoinIsUnjoinedAgain) {
  begin(stream);
  depend(other, stream);
  note(other, 1);
  depend(stream, other);
  note(other, 2);
  expect_end(stream, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

TEST_F(SimulatedCaptureErrors, AForkThatIsDestroyedUnjoinedFailsTheCapture) {
  const CUstream fork = ready.driver.create_stream();
  begin(stream);
  depend(fork, stream);
  note(fork, 1);
  EXPECT_EQ(api.stream_destroy(fork), CUDA_SUCCESS);
  expect_end(stream, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

TEST_F(SimulatedCaptureErrors, AFailedCaptureLetsGoOfWhatItHeld) {
  const auto held = std::make_shared<int>(0);
  begin(stream);
  ready.driver.launch(stream, {}, {}, 0ns, [held] {});
  EXPECT_EQ(held.use_count(), 2);
  EXPECT_EQ(api.stream_query(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_invalidated(stream);
  EXPECT_EQ(held.use_count(), 1);
}

// --- Waiting for what is captured -------------------------------------------------------

// "It is invalid to synchronize or query the execution status of a stream which is being
// captured or a captured event."
TEST_F(SimulatedCaptureErrors, ACapturingStreamCannotBeQueriedOrWaitedFor) {
  begin(stream);
  EXPECT_EQ(api.stream_query(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_invalidated(stream);
  begin(stream);
  EXPECT_EQ(api.stream_synchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_invalidated(stream);
  EXPECT_EQ(api.stream_synchronize(stream), CUDA_SUCCESS);
}

TEST_F(SimulatedCaptureErrors, ACapturedEventCannotBeQueriedWaitedForOrTimed) {
  const CUevent event = ready.create_event();
  const CUevent plain = ready.create_event();
  EXPECT_EQ(api.event_record(plain, other), CUDA_SUCCESS);
  float milliseconds = 0;
  const std::vector<std::function<CUresult()>> calls = {
      [&] { return api.event_query(event); },
      [&] { return api.event_synchronize(event); },
      [&] { return api.event_elapsed_time(&milliseconds, plain, event); },
      [&] { return api.event_elapsed_time(&milliseconds, event, plain); },
  };
  for (const auto& call : calls) {
    begin(stream);
    EXPECT_EQ(api.event_record(event, stream), CUDA_SUCCESS);
    EXPECT_EQ(call(), CUDA_ERROR_CAPTURED_EVENT);
    expect_invalidated(stream);
  }
}

TEST_F(SimulatedCaptureErrors, AnEventStaysCapturedAfterTheCapture) {
  const CUevent event = ready.create_event();
  begin(stream);
  EXPECT_EQ(api.event_record(event, stream), CUDA_SUCCESS);
  end(stream);
  EXPECT_EQ(api.event_query(event), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(api.event_synchronize(event), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(api.stream_wait_event(other, event, 0), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(status(other), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(api.event_record(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(api.event_query(event), CUDA_SUCCESS);
}

// "... a broader handle which encompasses an active stream capture, such as a device or
// context handle": in every mode, from every thread, of that device only.
TEST_F(SimulatedCaptureErrors, ADeviceWithACapturingStreamCannotBeWaitedFor) {
  for (const CUstreamCaptureMode mode : {kGlobal, kThreadLocal, kRelaxed}) {
    begin(stream, mode);
    EXPECT_EQ(on_thread(kRelaxed, [&] { return api.ctx_synchronize(); }), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalidated(stream);
  }
  EXPECT_EQ(api.ctx_synchronize(), CUDA_SUCCESS);
}

TEST_F(SimulatedCaptureErrors, AnotherDeviceCanBeWaitedForAndItsLegacyStreamUsed) {
  cistern::testing::ReadyDriver two({.devices = 2, .capacity_bytes = 16 * MiB});
  const CUstream capturing = two.create_blocking_stream();
  EXPECT_EQ(two.api.stream_begin_capture(capturing, kGlobal), CUDA_SUCCESS);
  two.use(1);
  EXPECT_EQ(two.api.ctx_synchronize(), CUDA_SUCCESS);
  CUstreamCaptureMode relaxed = kRelaxed;
  EXPECT_EQ(two.api.thread_exchange_stream_capture_mode(&relaxed), CUDA_SUCCESS);
  EXPECT_EQ(two.api.stream_synchronize(nullptr), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(two.api.stream_end_capture(capturing, &graph), CUDA_SUCCESS);
}

// --- The legacy stream ------------------------------------------------------------------

// "When any stream in the same context is being captured, and it was not created with
// cudaStreamNonBlocking, any attempted use of the legacy stream is invalid."
TEST_F(SimulatedCaptureErrors, TheLegacyStreamCannotBeUsedWhileABlockingStreamCaptures) {
  const CUstream blocking = ready.create_blocking_stream();
  const CUdeviceptr memory = ready.allocate(KiB);
  const CUevent event = ready.create_event();
  const CUgraphExec exec = instantiate(capture([](CUstream) {}));
  std::vector<char> host(KiB);
  const auto nothing = [](void*) {};
  const std::vector<std::pair<const char*, std::function<CUresult()>>> calls = {
      {"fill", [&] { return api.memset_d8_async(memory, 1, KiB, nullptr); }},
      {"copy",
       [&] { return api.memcpy_async(reinterpret_cast<CUdeviceptr>(host.data()), memory, KiB, CU_STREAM_LEGACY); }},
      {"synchronous copy", [&] { return api.memcpy(memory, memory + 512, 512); }},
      {"host function", [&] { return api.launch_host_func(nullptr, nothing, nullptr); }},
      {"record", [&] { return api.event_record(event, nullptr); }},
      {"wait", [&] { return api.stream_wait_event(nullptr, event, 0); }},
      {"query", [&] { return api.stream_query(nullptr); }},
      {"synchronise", [&] { return api.stream_synchronize(nullptr); }},
      {"graph", [&] { return api.graph_launch(exec, nullptr); }},
      {"upload", [&] { return api.graph_upload(exec, nullptr); }},
  };
  for (const CUstreamCaptureMode mode : {kGlobal, kRelaxed}) {
    for (const auto& [name, call] : calls) {
      SCOPED_TRACE(name);
      begin(blocking, mode);
      EXPECT_EQ(call(), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
      // The legacy stream tells nothing either, until the capture ends.
      CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
      EXPECT_EQ(api.stream_is_capturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
      expect_invalidated(blocking);
    }
  }
  EXPECT_EQ(api.stream_query(nullptr), CUDA_SUCCESS);
}

TEST_F(SimulatedCaptureErrors, AskingTheLegacyStreamForItsCaptureInvalidatesNothing) {
  const CUstream blocking = ready.create_blocking_stream();
  begin(blocking);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_EQ(api.stream_is_capturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(api.stream_get_capture_info(CU_STREAM_LEGACY, &status, nullptr, nullptr, nullptr, nullptr),
            CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  expect_valid(blocking);
  EXPECT_EQ(api.stream_is_capturing(nullptr, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(SimulatedCaptureErrors, TheLegacyStreamIsFreeWhileANonBlockingStreamCaptures) {
  begin(stream);
  note(nullptr, 1);
  EXPECT_EQ(api.stream_synchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(order, std::vector<int>{1});
  expect_valid(stream);
}

TEST_F(SimulatedCaptureErrors, ABlockingForkBarsTheLegacyStreamToo) {
  const CUstream blocking = ready.create_blocking_stream();
  begin(stream);
  EXPECT_EQ(api.stream_query(nullptr), CUDA_SUCCESS);
  depend(blocking, stream);
  EXPECT_EQ(api.stream_query(nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  expect_invalidated(stream);
}

TEST_F(SimulatedCaptureErrors, TheLegacyStreamCannotBecomePartOfACapture) {
  const CUevent event = ready.create_event();
  begin(stream);
  EXPECT_EQ(api.event_record(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_wait_event(nullptr, event, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_invalidated(stream);
  EXPECT_EQ(status(nullptr), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(SimulatedCaptureErrors, AKernelThatIsRefusedTellsTheDriversError) {
  begin(ready.create_blocking_stream());
  const auto held = std::make_shared<int>(0);
  try {
    ready.driver.launch(nullptr, {}, {}, 0ns, [held] {});
    ADD_FAILURE() << "the launch was not refused";
  } catch (const DriverError& error) {
    EXPECT_EQ(error.code(), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  }
  EXPECT_EQ(held.use_count(), 1);
}

// --- Dependencies across the boundary ---------------------------------------------------

// "It is invalid to wait on a non-captured event from a stream which is being captured without
// specifying the cudaEventWaitExternal flag."
TEST_F(SimulatedCaptureErrors, ACapturingStreamCannotWaitForWhatIsNotCaptured) {
  const CUevent event = ready.create_event();
  for (const bool is_recorded : {false, true}) {
    if (is_recorded) {
      EXPECT_EQ(api.event_record(event, other), CUDA_SUCCESS);
    }
    begin(stream);
    EXPECT_EQ(api.stream_wait_event(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    expect_invalidated(stream);
  }
}

TEST_F(SimulatedCaptureErrors, ACapturingStreamCannotWaitForAnEarlierCapture) {
  const CUevent event = ready.create_event();
  begin(stream);
  EXPECT_EQ(api.event_record(event, stream), CUDA_SUCCESS);
  end(stream);
  begin(stream);
  EXPECT_EQ(api.stream_wait_event(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  expect_invalidated(stream);
}

// "It is invalid to merge two separate capture graphs."
TEST_F(SimulatedCaptureErrors, TwoCapturesCannotMerge) {
  const CUevent event = ready.create_event();
  begin(stream);
  begin(other);
  EXPECT_EQ(api.event_record(event, other), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_wait_event(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  expect_invalidated(stream);
  expect_invalidated(other);
}

// "This flag is invalid outside of stream capture."
TEST_F(SimulatedCaptureErrors, ExternalEventsBelongInACapture) {
  const CUevent event = ready.create_event();
  EXPECT_EQ(api.event_record_with_flags(event, stream, CU_EVENT_RECORD_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.stream_wait_event(stream, event, CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.event_record_with_flags(event, stream, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.stream_wait_event(stream, event, 2), CUDA_ERROR_INVALID_VALUE);
}

// --- What cannot be captured ------------------------------------------------------------

TEST_F(SimulatedCaptureErrors, CallbacksAreRefused) {
  const auto nothing = [](CUstream, CUresult, void*) {};
  begin(stream);
  EXPECT_EQ(api.stream_add_callback(stream, nothing, nullptr, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_invalidated(stream);
}

TEST_F(SimulatedCaptureErrors, AnUploadIsRefused) {
  const CUgraphExec exec = instantiate(capture([](CUstream) {}));
  begin(stream);
  EXPECT_EQ(api.graph_upload(exec, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_invalidated(stream);
}

// --- An invalidated capture -------------------------------------------------------------

// "Further use of any streams which are being captured or captured events associated with the
// graph is invalid and will return an error, until stream capture is ended."
TEST_F(SimulatedCaptureErrors, NothingWorksOnAnInvalidatedCaptureButItsEnd) {
  const CUevent event = ready.create_event();
  const CUevent fresh = ready.create_event();
  const CUdeviceptr memory = ready.allocate(KiB);
  const CUgraphExec exec = instantiate(capture([](CUstream) {}));
  const auto nothing = [](void*) {};
  begin(stream);
  EXPECT_EQ(api.event_record(event, stream), CUDA_SUCCESS);
  depend(other, stream);
  EXPECT_EQ(api.stream_query(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  for (const CUstream each : {stream, other}) {
    EXPECT_EQ(api.memset_d8_async(memory, 1, KiB, each), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(api.launch_host_func(each, nothing, nullptr), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(api.event_record(fresh, each), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(api.stream_wait_event(each, event, 0), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(api.stream_query(each), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(api.stream_synchronize(each), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(api.graph_launch(exec, each), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(api.stream_begin_capture(each, kRelaxed), CUDA_ERROR_ILLEGAL_STATE);
    EXPECT_EQ(status(each), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  }
  EXPECT_EQ(api.event_query(event), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(api.stream_wait_event(ready.driver.create_stream(), event, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.event_query(fresh), CUDA_SUCCESS);  // it was not recorded
  // What tells about the stream itself still works.
  int priority = 0;
  EXPECT_EQ(api.stream_get_priority(stream, &priority), CUDA_SUCCESS);
  expect_invalidated(stream);
  EXPECT_EQ(api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_synchronize(other), CUDA_SUCCESS);
}

// --- Potentially unsafe calls -----------------------------------------------------------

// cuThreadExchangeStreamCaptureMode: the capturing thread itself.
TEST_F(SimulatedCaptureErrors, AnUnsafeCallInvalidatesTheThreadsOwnCaptureUnlessItIsRelaxed) {
  for (const CUstreamCaptureMode mode : {kGlobal, kThreadLocal}) {
    begin(stream, mode);
    EXPECT_EQ(allocate(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalidated(stream);
  }
  begin(stream, kRelaxed);
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
  expect_valid(stream);
}

TEST_F(SimulatedCaptureErrors, AThreadInRelaxedModeMayCallWhatIsUnsafe) {
  begin(stream, kGlobal);
  EXPECT_EQ(exchange(kRelaxed), CUDA_SUCCESS);
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
  EXPECT_EQ(exchange(kThreadLocal), CUDA_SUCCESS);
  EXPECT_EQ(allocate(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_invalidated(stream);
}

// Which captures of other threads forbid a thread in which mode what is unsafe.
TEST_F(SimulatedCaptureErrors, OnlyAGlobalCaptureForbidsItToOtherThreadsAndOnlyToGlobalOnes) {
  for (const CUstreamCaptureMode capture : {kGlobal, kThreadLocal, kRelaxed}) {
    for (const CUstreamCaptureMode thread : {kGlobal, kThreadLocal, kRelaxed}) {
      SCOPED_TRACE("capture " + std::to_string(capture) + ", thread " + std::to_string(thread));
      const bool is_forbidden = capture == kGlobal && thread == kGlobal;
      begin(stream, capture);
      EXPECT_EQ(on_thread(thread, [&] { return allocate(); }),
                is_forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
      is_forbidden ? expect_invalidated(stream) : expect_valid(stream);
    }
  }
}

// As an H200's driver (580.159) has them; it allows a cuMemcpy.
TEST_F(SimulatedCaptureErrors, TheCallsThatAreUnsafe) {
  const CUdeviceptr memory = ready.allocate(KiB);
  const CUevent event = ready.create_event();
  const CUgraph graph = capture([](CUstream) {});
  CUgraphExec exec = nullptr;
  CUdeviceptr memory_of_pool = 0;
  CUmemoryPool pool = nullptr;
  EXPECT_EQ(api.device_get_default_mem_pool(&pool, 0), CUDA_SUCCESS);
  const std::vector<std::pair<const char*, std::function<CUresult()>>> calls = {
      {"cuMemAlloc", [&] { return allocate(); }},
      {"cuMemFree", [&] { return api.mem_free(memory); }},
      {"cuEventQuery", [&] { return api.event_query(event); }},
      {"cuEventSynchronize", [&] { return api.event_synchronize(event); }},
      {"cuStreamQuery", [&] { return api.stream_query(other); }},
      {"cuStreamQuery of the legacy stream", [&] { return api.stream_query(nullptr); }},
      {"cuStreamSynchronize", [&] { return api.stream_synchronize(other); }},
      {"cuGraphInstantiate", [&] { return api.graph_instantiate(&exec, graph, 0); }},
      {"cuMemAllocAsync", [&] { return api.mem_alloc_async(&memory_of_pool, KiB, other); }},
      {"cuMemPoolTrimTo", [&] { return api.mem_pool_trim_to(pool, 0); }},
  };
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    begin(stream, kGlobal);
    EXPECT_EQ(call(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalidated(stream);
  }
  begin(stream, kGlobal);
  EXPECT_EQ(api.memcpy(memory, memory + 512, 512), CUDA_SUCCESS);
  expect_valid(stream);
  begin(stream, kRelaxed);
  EXPECT_EQ(api.mem_free(memory), CUDA_SUCCESS);  // it was not freed before
  for (const auto& [name, call] : calls) {
    if (name != calls[1].first) {
      EXPECT_EQ(call(), CUDA_SUCCESS) << name;
    }
  }
  expect_valid(stream);
  EXPECT_EQ(api.mem_free(memory_of_pool), CUDA_SUCCESS);
  EXPECT_EQ(api.graph_exec_destroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
}

}  // namespace
}  // namespace cistern
