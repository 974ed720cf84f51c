// Capture modes: what is prohibited to which threads while somebody captures.

#include <thread>

#include "tests/conformance/graph_case.h"

namespace cistern::conformance {
namespace {

#define MODES "Driver API, Stream Management, cuThreadExchangeStreamCaptureMode"

class CaptureModes : public GraphCase {
 protected:
  // A call that the documentation names as potentially unsafe; what it gives is given back.
  CUresult unsafe_call() {
    CUdeviceptr memory = 0;
    const CUresult result = api.mem_alloc(&memory, 4096);
    if (result == CUDA_SUCCESS) kept_.push_back(memory);
    return result;
  }
  CUresult unsafe_call_of_another_thread() {
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread([&] {
      EXPECT_OK(api.ctx_set_current(context));
      result = unsafe_call();
    }).join();
    return result;
  }
  CUstreamCaptureMode exchange(CUstreamCaptureMode mode) {
    EXPECT_OK(api.thread_exchange_stream_capture_mode(&mode));
    return mode;
  }
  void give_back() override {
    for (const CUdeviceptr memory : kept_) EXPECT_OK(api.mem_free(memory));
    GraphCase::give_back();
  }

 private:
  std::vector<CUdeviceptr> kept_;
};

STATEMENT(C183, CaptureModes, AThreadStartsGlobal, MODES,
          "A thread's mode is global until it is exchanged, and the exchange returns the former one.") {
  EXPECT_EQ(exchange(CU_STREAM_CAPTURE_MODE_RELAXED), CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(exchange(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CU_STREAM_CAPTURE_MODE_RELAXED);
  std::thread([&] { EXPECT_EQ(exchange(CU_STREAM_CAPTURE_MODE_GLOBAL), CU_STREAM_CAPTURE_MODE_GLOBAL); }).join();
  EXPECT_EQ(exchange(CU_STREAM_CAPTURE_MODE_GLOBAL), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

STATEMENT(C184, CaptureModes, UnknownModesAreRefused, "Driver API, Stream Management, cuStreamBeginCapture",
          "A mode that does not exist is `CUDA_ERROR_INVALID_VALUE`.") {
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.stream_begin_capture(make_stream(), static_cast<CUstreamCaptureMode>(3)));
}

STATEMENT(
    C185, CaptureModes, AnUnsafeCallInvalidatesOnesOwnCapture, MODES,
    "A thread that captures, but not relaxed, may not make potentially unsafe calls such as an allocation: they are "
    "`CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.") {
  for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
    const CUstream stream = make_stream();
    begin(stream, mode);
    EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, unsafe_call());
    EXPECT_EQ(status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    drop(stream);
  }
}

STATEMENT(C186, CaptureModes, ARelaxedCaptureAllowsUnsafeCalls, MODES,
          "A relaxed capture does not prohibit potentially unsafe calls.") {
  const CUstream stream = make_stream();
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_OK(unsafe_call());
  EXPECT_EQ(status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_NE(end(stream), nullptr);
}

STATEMENT(C187, CaptureModes, AGlobalCaptureBindsOtherThreads, MODES,
          "While a global capture goes on, other threads may not make potentially unsafe calls either.") {
  const CUstream stream = make_stream();
  begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, unsafe_call_of_another_thread());
  drop(stream);
}

STATEMENT(C188, CaptureModes, AThreadLocalCaptureBindsItsThreadOnly, MODES,
          "A thread-local capture leaves other threads free.") {
  const CUstream stream = make_stream();
  begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_OK(unsafe_call_of_another_thread());
  EXPECT_NE(end(stream), nullptr);
}

STATEMENT(C189, CaptureModes, ARelaxedThreadIsFree, MODES,
          "A thread whose mode is relaxed may make potentially unsafe calls during its own capture.") {
  const CUstream stream = make_stream();
  begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  exchange(CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_OK(unsafe_call());
  exchange(CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_NE(end(stream), nullptr);
}

STATEMENT(C190, CaptureModes, AThreadLocalThreadIgnoresOthers, MODES,
          "A thread whose mode is thread-local ignores the captures of other threads, global ones too.") {
  const CUstream stream = make_stream();
  begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  std::thread([&] {
    EXPECT_OK(api.ctx_set_current(context));
    exchange(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    EXPECT_OK(unsafe_call());
  }).join();
  EXPECT_NE(end(stream), nullptr);
}

STATEMENT(C191, CaptureModes, ConflictsStayProhibitedWhenRelaxed, MODES,
          "Calls that necessarily conflict with a capture, as the query of a captured event, stay prohibited in "
          "relaxed mode.") {
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  record(event, stream);
  EXPECT_RESULT(CUDA_ERROR_CAPTURED_EVENT, api.event_query(event));
  drop(stream);
}

STATEMENT(
    C192, CaptureModes, TheThreadThatBeganEnds, "Driver API, Stream Management, cuStreamEndCapture",
    "A capture that is not relaxed must end on the thread that began it: `CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD`.") {
  const CUstream stream = make_stream();
  begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  std::thread([&] {
    EXPECT_OK(api.ctx_set_current(context));
    CUgraph graph = nullptr;
    EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, api.stream_end_capture(stream, &graph));
  }).join();
  drop(stream);
}

STATEMENT(C193, CaptureModes, AnyThreadEndsARelaxedCapture, "Driver API, Stream Management, cuStreamEndCapture",
          "A relaxed capture may end on another thread.") {
  const CUstream stream = make_stream();
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  std::thread([&] {
    EXPECT_OK(api.ctx_set_current(context));
    EXPECT_NE(end(stream), nullptr);
  }).join();
}

STATEMENT(C194, CaptureModes, TheContextIsNotSynchronized,
          "Programming Guide, CUDA Graphs, Creating a Graph Using Stream Capture, Prohibited and Unhandled Operations",
          "Synchronising with a context that has an active capture is `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.") {
  const CUstream stream = make_stream();
  begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, api.ctx_synchronize());
  drop(stream);
}

#undef MODES

}  // namespace
}  // namespace cistern::conformance
