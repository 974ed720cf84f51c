// Stream capture: what it records, across streams, and where it ends.

#include <algorithm>
#include <set>
#include <thread>

#include "tests/conformance/graph_case.h"

namespace cistern::conformance {
namespace {

#define API "Driver API, Stream Management, "
#define GUIDE "Programming Guide, CUDA Graphs, Creating a Graph Using Stream Capture"

class Capture : public GraphCase {};

STATEMENT(C156, Capture, AStreamTellsWhetherItCaptures, API "cuStreamIsCapturing",
          "A stream's capture status is none, then active from begin to end, then none again.") {
  const CUstream stream = make_stream();
  EXPECT_EQ(status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  begin(stream);
  EXPECT_EQ(status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  end(stream);
  EXPECT_EQ(status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

STATEMENT(C157, Capture, CapturedWorkDoesNotRun, API "cuStreamBeginCapture",
          "What is pushed into a capturing stream is not executed but captured.") {
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  begin(stream);
  fill(memory, 1, 4096, stream);
  note(stream, 1);
  const CUgraph graph = end(stream);
  finish(stream);
  EXPECT_OK(api.ctx_synchronize());
  EXPECT_TRUE(holds(memory, 4096, 0));
  EXPECT_TRUE(log.numbers().empty());
  EXPECT_EQ(nodes(graph).size(), 2u);
}

STATEMENT(C158, Capture, TheLegacyStreamIsNotCaptured, API "cuStreamBeginCapture",
          "Capture may not begin on the legacy stream: `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.") {
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                api.stream_begin_capture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                api.stream_begin_capture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

STATEMENT(C159, Capture, AStreamCapturesOnce, API "cuStreamBeginCapture",
          "Capture may only begin on a stream that is not capturing yet: `CUDA_ERROR_ILLEGAL_STATE`.") {
  const CUstream stream = make_stream();
  begin(stream);
  EXPECT_RESULT(CUDA_ERROR_ILLEGAL_STATE, api.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  drop(stream);
}

STATEMENT(C160, Capture, WhatDidNotBeginDoesNotEnd, API "cuStreamEndCapture",
          "Capture must have been begun on the stream that ends it: `CUDA_ERROR_ILLEGAL_STATE`.") {
  CUgraph graph = nullptr;
  EXPECT_RESULT(CUDA_ERROR_ILLEGAL_STATE, api.stream_end_capture(make_stream(), &graph));
  EXPECT_EQ(graph, nullptr);
}

STATEMENT(C161, Capture, AnIdIsOfOneCapture, API "cuStreamGetCaptureInfo",
          "The id of a capture sequence is unique over the lifetime of the process.") {
  const CUstream stream = make_stream();
  std::set<unsigned long long> ids;
  for (int i = 0; i < 10; ++i) {
    begin(stream);
    EXPECT_TRUE(ids.insert(capture_id(stream)).second);
    end(stream);
  }
}

STATEMENT(C162, Capture, TheNodeOfTheLastWorkIsTheDependency, API "cuStreamGetCaptureInfo",
          "The dependencies are the nodes that the next node captured in the stream will depend on; the graph is the "
          "one being captured.") {
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  CUstreamCaptureStatus came = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  const CUgraphNode* dependencies = nullptr;
  std::size_t count = 99;
  begin(stream);
  EXPECT_OK(api.stream_get_capture_info(stream, &came, nullptr, &graph, &dependencies, &count));
  EXPECT_EQ(came, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(count, 0u);
  fill(memory, 1, 4096, stream);
  EXPECT_OK(api.stream_get_capture_info(stream, &came, nullptr, &graph, &dependencies, &count));
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(type(dependencies[0]), CU_GRAPH_NODE_TYPE_MEMSET);
  EXPECT_EQ(graph, end(stream));
}

STATEMENT(C163, Capture, WorkBecomesNodesOfItsKind, GUIDE,
          "Fills, copies and host functions become memset, memcpy and host nodes, each depending on the one before in "
          "the stream.") {
  const CUstream stream = make_stream();
  const CUdeviceptr a = make_memory(), b = make_memory();
  begin(stream);
  fill(a, 1, 4096, stream);
  copy(b, a, 4096, stream);
  note(stream, 1);
  const CUgraph graph = end(stream);
  const std::vector<CUgraphNodeType> all = types(graph);
  for (const auto expected : {CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_HOST}) {
    EXPECT_EQ(std::count(all.begin(), all.end(), expected), 1) << expected;
  }
  ASSERT_EQ(edges(graph).size(), 2u);
  for (const Edge& edge : edges(graph)) {
    EXPECT_EQ(type(edge.to),
              type(edge.from) == CU_GRAPH_NODE_TYPE_MEMSET ? CU_GRAPH_NODE_TYPE_MEMCPY : CU_GRAPH_NODE_TYPE_HOST);
  }
}

STATEMENT(C164, Capture, ACapturedEventBringsTheWaitingStreamIn, GUIDE ", Cross-stream Dependencies and Events",
          "A stream that waits for an event recorded in a capture joins that capture.") {
  const CUstream origin = make_stream(), side = make_stream();
  const CUevent fork = make_event(), join = make_event();
  begin(origin);
  record(fork, origin);
  wait(side, fork);
  EXPECT_EQ(status(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(capture_id(side), capture_id(origin));
  record(join, side);
  wait(origin, join);
  end(origin);
  EXPECT_EQ(status(side), CU_STREAM_CAPTURE_STATUS_NONE);
}

STATEMENT(C165, Capture, ForkAndJoinBecomeEdges, GUIDE ", Cross-stream Dependencies and Events",
          "Events inside a capture make edges between nodes of its streams, and no nodes of their own.") {
  const CUstream origin = make_stream(), side = make_stream();
  const CUevent fork = make_event(), join = make_event();
  const CUdeviceptr a = make_memory(), b = make_memory(), c = make_memory();
  begin(origin);
  fill(a, 1, 4096, origin);
  record(fork, origin);
  wait(side, fork);
  copy(b, a, 4096, side);
  copy(c, a, 4096, origin);
  record(join, side);
  wait(origin, join);
  note(origin, 1);
  const CUgraph graph = end(origin);
  EXPECT_EQ(nodes(graph).size(), 4u);
  EXPECT_EQ(edges(graph).size(), 4u);
  for (const Edge& edge : edges(graph)) {
    EXPECT_NE(type(edge.to), type(edge.from));  // never from copy to copy
  }
}

STATEMENT(
    C166, Capture, EveryStreamMustJoinTheOrigin, GUIDE ", Cross-stream Dependencies and Events",
    "Where a stream with captured work has not joined the origin, the end is `CUDA_ERROR_STREAM_CAPTURE_UNJOINED`.") {
  const CUstream origin = make_stream(), side = make_stream();
  const CUevent fork = make_event();
  const CUdeviceptr memory = make_memory();
  begin(origin);
  record(fork, origin);
  wait(side, fork);
  fill(memory, 1, 4096, side);
  CUgraph graph = nullptr;
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, api.stream_end_capture(origin, &graph));
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(status(origin), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(status(side), CU_STREAM_CAPTURE_STATUS_NONE);
}

STATEMENT(C167, Capture, OnlyTheOriginEnds, API "cuStreamEndCapture",
          "Capture ends on the stream that began it: on another one that joined it is "
          "`CUDA_ERROR_STREAM_CAPTURE_UNMATCHED`.") {
  const CUstream origin = make_stream(), side = make_stream();
  const CUevent fork = make_event();
  begin(origin);
  record(fork, origin);
  wait(side, fork);
  CUgraph graph = nullptr;
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, api.stream_end_capture(side, &graph));
  drop(origin);
}

STATEMENT(
    C168, Capture, AnOutsideEventMayNotComeIn, GUIDE ", Prohibited and Unhandled Operations",
    "A capturing stream may not wait for an event that was recorded outside: `CUDA_ERROR_STREAM_CAPTURE_ISOLATION`.") {
  const CUstream outside = make_stream(), stream = make_stream();
  const CUevent event = make_event();
  record(event, outside);
  begin(stream);
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, api.stream_wait_event(stream, event, 0));
  drop(stream);
  finish(outside);
}

STATEMENT(
    C169, Capture, CapturesDoNotMerge, GUIDE ", Prohibited and Unhandled Operations",
    "Two captures may not be merged by waiting in one for an event of the other: `CUDA_ERROR_STREAM_CAPTURE_MERGE`.") {
  const CUstream one = make_stream(), other = make_stream();
  const CUevent event = make_event();
  begin(one);
  begin(other);
  record(event, one);
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_MERGE, api.stream_wait_event(other, event, 0));
  drop(one);
  drop(other);
}

STATEMENT(C170, Capture, ACapturedEventIsNotQueried, GUIDE ", Prohibited and Unhandled Operations",
          "The state of an event that was last recorded in a capture cannot be asked: `CUDA_ERROR_CAPTURED_EVENT`.") {
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  begin(stream);
  record(event, stream);
  EXPECT_RESULT(CUDA_ERROR_CAPTURED_EVENT, api.event_query(event));
  drop(stream);
}

STATEMENT(C171, Capture, ACapturedEventIsNotWaitedForByTheHost, GUIDE ", Prohibited and Unhandled Operations",
          "Synchronising with an event that was last recorded in a capture is `CUDA_ERROR_CAPTURED_EVENT`.") {
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  begin(stream);
  record(event, stream);
  EXPECT_RESULT(CUDA_ERROR_CAPTURED_EVENT, api.event_synchronize(event));
  drop(stream);
}

STATEMENT(C172, Capture, ACapturingStreamIsNotSynchronized, GUIDE ", Prohibited and Unhandled Operations",
          "Synchronising with a capturing stream is `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.") {
  const CUstream stream = make_stream();
  begin(stream);
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, api.stream_synchronize(stream));
  drop(stream);
}

STATEMENT(C173, Capture, ACapturingStreamIsNotQueried, GUIDE ", Prohibited and Unhandled Operations",
          "Querying a capturing stream is `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.") {
  const CUstream stream = make_stream();
  begin(stream);
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, api.stream_query(stream));
  drop(stream);
}

STATEMENT(C174, Capture, ABrokenCaptureIsInvalidated, GUIDE ", Invalidation",
          "A prohibited operation invalidates the capture: the status says so and further use of the stream is "
          "`CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`.") {
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  begin(stream);
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, api.stream_synchronize(stream));
  EXPECT_EQ(status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, api.memset_d8_async(memory, 1, 4096, stream));
  drop(stream);
}

STATEMENT(C175, Capture, AnInvalidatedCaptureEndsWithoutAGraph, GUIDE ", Invalidation",
          "The end of an invalidated capture gives an error and a null graph, and the stream is usable again.") {
  const CUstream stream = make_stream();
  begin(stream);
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, api.stream_synchronize(stream));
  auto* graph = reinterpret_cast<CUgraph>(std::size_t{1});
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, api.stream_end_capture(stream, &graph));
  EXPECT_EQ(graph, nullptr);
  note(stream, 1);
  finish(stream);
  EXPECT_EQ(log.numbers(), std::vector<int>{1});
}

STATEMENT(C176, Capture, LegacyIsUnusableWhileABlockingStreamCaptures, GUIDE ", Prohibited and Unhandled Operations",
          "Work in the legacy stream while a blocking stream captures is `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`.") {
  const CUstream blocking = make_stream(CU_STREAM_DEFAULT);
  const CUdeviceptr memory = make_memory();
  begin(blocking);
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, api.memset_d8_async(memory, 1, 4096, nullptr));
  drop(blocking);
}

STATEMENT(C177, Capture, AskingLegacyDoesNotInvalidate, API "cuStreamIsCapturing",
          "Asking the legacy stream for its status while a blocking stream captures is "
          "`CUDA_ERROR_STREAM_CAPTURE_IMPLICIT` and "
          "leaves that capture valid.") {
  const CUstream blocking = make_stream(CU_STREAM_DEFAULT);
  CUstreamCaptureStatus came = CU_STREAM_CAPTURE_STATUS_NONE;
  begin(blocking);
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, api.stream_is_capturing(nullptr, &came));
  EXPECT_EQ(status(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_NE(end(blocking), nullptr);
}

STATEMENT(C178, Capture, LegacyIsUsableWhileANonBlockingStreamCaptures, GUIDE ", Prohibited and Unhandled Operations",
          "A capture on a non-blocking stream leaves the legacy stream alone.") {
  const CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr memory = make_memory();
  begin(stream);
  fill(memory, 1, 4096, nullptr);
  EXPECT_NE(end(stream), nullptr);
  finish(nullptr);
  EXPECT_TRUE(holds(memory, 4096, 1));
}

STATEMENT(C179, Capture, CallbacksAreNotCaptured, API "cuStreamAddCallback",
          "cuStreamAddCallback is not supported in a capture: `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.") {
  const CUstream stream = make_stream();
  begin(stream);
  const auto nothing = [](CUstream, CUresult, void*) {};
  EXPECT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, api.stream_add_callback(stream, nothing, nullptr, 0));
  drop(stream);
}

STATEMENT(C180, Capture, ExternalEventsBecomeNodes, "Driver API, Event Management, cuEventRecordWithFlags",
          "A record or wait marked external becomes an event node of the graph.") {
  const CUstream stream = make_stream();
  const CUevent waited = make_event(), recorded = make_event();
  begin(stream);
  EXPECT_OK(api.stream_wait_event(stream, waited, CU_EVENT_WAIT_EXTERNAL));
  EXPECT_OK(api.event_record_with_flags(recorded, stream, CU_EVENT_RECORD_EXTERNAL));
  const std::vector<CUgraphNodeType> all = types(end(stream));
  EXPECT_EQ(std::count(all.begin(), all.end(), CU_GRAPH_NODE_TYPE_WAIT_EVENT), 1);
  EXPECT_EQ(std::count(all.begin(), all.end(), CU_GRAPH_NODE_TYPE_EVENT_RECORD), 1);
}

STATEMENT(C181, Capture, EarlierWorkOfTheStreamIsNoPart, GUIDE,
          "Work that the stream was given before the capture is not part of it and runs.") {
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  Gate& gate = hold(stream);
  begin(stream);
  fill(memory, 1, 4096, stream);
  const CUgraph graph = end(stream);
  EXPECT_EQ(nodes(graph).size(), 1u);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(stream));
  gate.open();
  finish(stream);
}

STATEMENT(C182, Capture, ThePerThreadStreamIsCaptured, API "cuStreamBeginCapture",
          "Capture is refused on the legacy stream only: the per-thread default stream captures.") {
  begin(CU_STREAM_PER_THREAD);
  note(CU_STREAM_PER_THREAD, 1);
  EXPECT_EQ(status(CU_STREAM_PER_THREAD), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(nodes(end(CU_STREAM_PER_THREAD)).size(), 1u);
}

#undef API
#undef GUIDE

}  // namespace
}  // namespace cistern::conformance
