// Capturing streams: CUDA Driver API, "Stream Management"; CUDA C++ Programming Guide, "CUDA
// Graphs", "Creating a Graph Using Stream Capture".
#include <cstring>
#include <thread>

#include "tests/simulated/capture_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::KiB;
using cistern::testing::MiB;
using Marks = std::vector<int>;

class SimulatedCapture : public cistern::testing::CaptureTest {};

// cuStreamBeginCapture: "operations pushed into the stream will not be executed".
TEST_F(SimulatedCapture, WhatACapturingStreamIsGivenDoesNotRun) {
  begin(stream);
  EXPECT_EQ(status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  note(stream, 1);
  ready.driver.run_until_idle();
  EXPECT_EQ(order, Marks());
  const CUgraph graph = end(stream);
  EXPECT_EQ(status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  ready.driver.run_until_idle();
  EXPECT_EQ(order, Marks());
  EXPECT_EQ(types(graph), std::vector{CU_GRAPH_NODE_TYPE_KERNEL});
}

TEST_F(SimulatedCapture, EachKindOfWorkBecomesANodeOfItsType) {
  const CUdeviceptr memory = ready.allocate(4 * KiB);
  std::vector<unsigned char> host(4 * KiB);
  const auto nothing = [](void*) {};
  begin(stream);
  note(stream, 1);
  EXPECT_EQ(api.memset_d8_async(memory, 7, 4 * KiB, stream), CUDA_SUCCESS);
  EXPECT_EQ(api.memcpy_async(reinterpret_cast<CUdeviceptr>(host.data()), memory, 4 * KiB, stream), CUDA_SUCCESS);
  EXPECT_EQ(api.launch_host_func(stream, nothing, nullptr), CUDA_SUCCESS);
  const CUgraph graph = end(stream);
  EXPECT_EQ(types(graph), (std::vector{CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_MEMCPY,
                                       CU_GRAPH_NODE_TYPE_HOST}));
  EXPECT_EQ(edges(graph), (Edges{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(host[0], 0);
  EXPECT_EQ(api.graph_launch(instantiate(graph), stream), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(host, std::vector<unsigned char>(4 * KiB, 7));
}

// "Cross-stream Dependencies and Events": a wait for a captured event captures the stream too.
TEST_F(SimulatedCapture, AWaitForACapturedEventForksAndAWaitBackJoins) {
  begin(stream);
  note(stream, 1);
  depend(other, stream);
  EXPECT_EQ(status(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  note(other, 2);
  note(stream, 3);
  depend(stream, other);
  note(stream, 4);
  const CUgraph graph = end(stream);
  EXPECT_EQ(status(other), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(edges(graph), (Edges{{0, 1}, {0, 2}, {2, 3}, {1, 3}}));
  EXPECT_EQ(api.graph_launch(instantiate(graph), stream), CUDA_SUCCESS);
  ready.driver.run_until_idle();
  EXPECT_EQ(order, (Marks{1, 2, 3, 4}));
}

TEST_F(SimulatedCapture, AForkThatCapturedNothingNeedsNoJoin) {
  begin(stream);
  note(stream, 1);
  depend(other, stream);
  const CUgraph graph = end(stream);
  EXPECT_EQ(nodes(graph).size(), 1u);
  EXPECT_EQ(status(other), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(SimulatedCapture, AForkOfAForkMayJoinThroughEitherStream) {
  const CUstream third = ready.driver.create_stream();
  begin(stream);
  depend(other, stream);
  note(other, 1);
  depend(third, other);
  note(third, 2);
  depend(stream, third);
  note(stream, 3);
  const CUgraph graph = end(stream);
  EXPECT_EQ(edges(graph), (Edges{{0, 1}, {1, 2}}));
}

TEST_F(SimulatedCapture, WaitingTwiceForTheSameNodesMakesOneEdge) {
  begin(stream);
  note(stream, 1);
  depend(other, stream);
  depend(other, stream);
  note(other, 2);
  depend(stream, other);
  depend(stream, other);
  const CUgraph graph = end(stream);
  EXPECT_EQ(edges(graph), (Edges{{0, 1}}));
}

// "An event captured stands for a set of nodes": those of its record, not later ones.
TEST_F(SimulatedCapture, AnEventStandsForWhatItsStreamHadCapturedWhenItWasRecorded) {
  const CUevent event = ready.create_event();
  begin(stream);
  note(stream, 1);
  EXPECT_EQ(api.event_record(event, stream), CUDA_SUCCESS);
  note(stream, 2);
  EXPECT_EQ(api.stream_wait_event(other, event, 0), CUDA_SUCCESS);
  note(other, 3);
  depend(stream, other);
  EXPECT_EQ(edges(end(stream)), (Edges{{0, 1}, {0, 2}}));
}

TEST_F(SimulatedCapture, AStreamOfAnotherDeviceTakesPart) {
  cistern::testing::ReadyDriver two({.devices = 2, .capacity_bytes = 16 * MiB});
  const CUstream near = two.driver.create_stream(0);
  const CUstream far = two.driver.create_stream(1);
  const CUevent fork = two.create_event();
  two.use(1);
  const CUevent join = two.create_event();
  EXPECT_EQ(two.api.stream_begin_capture(near, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(two.api.event_record(fork, near), CUDA_SUCCESS);
  EXPECT_EQ(two.api.stream_wait_event(far, fork, 0), CUDA_SUCCESS);
  two.driver.launch(far, {}, {}, 3ms, {});
  EXPECT_EQ(two.api.event_record(join, far), CUDA_SUCCESS);
  EXPECT_EQ(two.api.stream_wait_event(near, join, 0), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(two.api.stream_end_capture(near, &graph), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  EXPECT_EQ(two.api.graph_instantiate(&exec, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(two.api.graph_launch(exec, near), CUDA_SUCCESS);
  two.driver.run_until_idle();
  EXPECT_EQ(two.driver.virtual_time(1), 3ms);
}

// "The next non-captured item in the stream will still have a dependency on the most recent
// prior non-captured item, despite intermediate items having been removed."
TEST_F(SimulatedCapture, WorkAroundACaptureKeepsItsOrder) {
  note(stream, 1, 1ms);
  begin(stream);
  note(stream, 2);
  end(stream);
  note(stream, 3);
  EXPECT_EQ(order, Marks());
  ready.driver.run_until_idle(stream);
  EXPECT_EQ(order, (Marks{1, 3}));
}

TEST_F(SimulatedCapture, OtherStreamsRunMeanwhile) {
  begin(stream);
  note(stream, 1);
  note(other, 2);
  EXPECT_EQ(api.stream_synchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(order, Marks{2});
  expect_valid(stream);
}

TEST_F(SimulatedCapture, TheThreadsOwnDefaultStreamCanBeCaptured) {
  begin(CU_STREAM_PER_THREAD);
  note(CU_STREAM_PER_THREAD, 1);
  EXPECT_EQ(nodes(end(CU_STREAM_PER_THREAD)).size(), 1u);
}

TEST_F(SimulatedCapture, AThreadThatEndsTakesTheCaptureOfItsDefaultStreamAlong) {
  std::thread([&] {
    ready.use(0);
    EXPECT_EQ(api.stream_begin_capture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  }).join();
  CUdeviceptr memory = 0;
  EXPECT_EQ(api.mem_alloc(&memory, 1), CUDA_SUCCESS);  // no global capture is left that forbids it
}

// cuStreamGetCaptureInfo.
TEST_F(SimulatedCapture, InfoTellsTheSequenceTheGraphAndWhatComesNext) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_EQ(api.stream_get_capture_info(stream, &status, nullptr, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  begin(stream);
  note(stream, 1);
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* dependencies = nullptr;
  std::size_t count = 0;
  EXPECT_EQ(api.stream_get_capture_info(stream, &status, &id, &graph, &dependencies, &count), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(dependencies[0], nodes(graph).back());
  EXPECT_EQ(graph, end(stream));

  begin(stream);
  cuuint64_t next_id = 0;
  EXPECT_EQ(api.stream_get_capture_info(stream, &status, &next_id, nullptr, nullptr, &count), CUDA_SUCCESS);
  EXPECT_NE(next_id, id);
  EXPECT_EQ(count, 0u);
  end(stream);
}

TEST_F(SimulatedCapture, ForkedStreamsShareTheId) {
  begin(stream);
  depend(other, stream);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t ids[2] = {};
  EXPECT_EQ(api.stream_get_capture_info(stream, &status, &ids[0], nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_get_capture_info(other, &status, &ids[1], nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_NE(ids[0], 0u);
  end(stream);
}

// CU_EVENT_RECORD_EXTERNAL and CU_EVENT_WAIT_EXTERNAL: nodes, not edges.
TEST_F(SimulatedCapture, ExternalEventsBecomeNodesThatActAtEachLaunch) {
  const CUevent before = ready.create_event();
  const CUevent after = ready.create_event();
  begin(stream);
  EXPECT_EQ(api.stream_wait_event(stream, before, CU_EVENT_WAIT_EXTERNAL), CUDA_SUCCESS);
  note(stream, 2);
  EXPECT_EQ(api.event_record_with_flags(after, stream, CU_EVENT_RECORD_EXTERNAL), CUDA_SUCCESS);
  note(stream, 4);
  const CUgraph graph = end(stream);
  EXPECT_EQ(types(graph), (std::vector{CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_KERNEL,
                                       CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_KERNEL}));
  const CUgraphExec exec = instantiate(graph);
  for (int launch = 0; launch < 2; ++launch) {
    order.clear();
    note(other, 1, 1ms);
    EXPECT_EQ(api.event_record(before, other), CUDA_SUCCESS);
    EXPECT_EQ(api.graph_launch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(api.event_query(after), CUDA_ERROR_NOT_READY);
    const CUstream third = ready.driver.create_stream();
    EXPECT_EQ(api.stream_wait_event(third, after, 0), CUDA_SUCCESS);
    note(third, 3);
    EXPECT_EQ(api.stream_synchronize(third), CUDA_SUCCESS);
    EXPECT_EQ(order, (Marks{1, 2, 3}));
    EXPECT_EQ(api.stream_synchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(order, (Marks{1, 2, 3, 4}));
  }
}

TEST_F(SimulatedCapture, ALaunchCapturedBecomesAnEmbeddedGraph) {
  const CUgraphExec inner = instantiate(capture([&](CUstream on) {
    note(on, 2, 1ms);
    depend(other, on);
    note(other, 2, 1ms);
    depend(on, other);
  }));
  begin(stream);
  note(stream, 1, 1ms);
  EXPECT_EQ(api.graph_launch(inner, stream), CUDA_SUCCESS);
  note(stream, 3, 1ms);
  const CUgraph graph = end(stream);
  EXPECT_EQ(types(graph),
            (std::vector{CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_GRAPH, CU_GRAPH_NODE_TYPE_KERNEL}));
  EXPECT_EQ(order, Marks());
  const CUgraphExec outer = instantiate(graph);
  EXPECT_EQ(api.graph_exec_destroy(inner), CUDA_SUCCESS);  // it was copied
  EXPECT_EQ(api.graph_launch(outer, stream), CUDA_SUCCESS);
  ready.driver.run_until_idle();
  EXPECT_EQ(order, (Marks{1, 2, 2, 3}));
  EXPECT_EQ(ready.driver.virtual_time(), 4ms);  // nothing overlaps
}

TEST_F(SimulatedCapture, WhatFollowsAnEmbeddedGraphWaitsForAllOfItsEnds) {
  const CUgraphExec inner = instantiate(capture([&](CUstream on) {
    depend(other, on);
    note(on, 1, 5ms);
    note(other, 1, 1ms);
    depend(on, other);
  }));
  const CUgraph graph = capture([&](CUstream on) {
    EXPECT_EQ(api.graph_launch(inner, on), CUDA_SUCCESS);
    note(on, 2, 1ms);
  });
  EXPECT_EQ(api.graph_launch(instantiate(graph), stream), CUDA_SUCCESS);
  ready.driver.run_until_idle();
  EXPECT_EQ(order, (Marks{1, 1, 2}));
  EXPECT_EQ(ready.driver.virtual_time(), 6ms);
}

TEST_F(SimulatedCapture, AnEmptyEmbeddedGraphPassesTheOrderOn) {
  const CUgraphExec empty = instantiate(capture([](CUstream) {}));
  const CUgraph graph = capture([&](CUstream on) {
    note(on, 1, 1ms);
    EXPECT_EQ(api.graph_launch(empty, on), CUDA_SUCCESS);
    note(on, 2, 1ms);
  });
  EXPECT_EQ(api.graph_launch(instantiate(graph), stream), CUDA_SUCCESS);
  ready.driver.run_until_idle();
  EXPECT_EQ(order, (Marks{1, 2}));
  EXPECT_EQ(ready.driver.virtual_time(), 2ms);
}

TEST_F(SimulatedCapture, AStreamCanBeCapturedAgainAndAgain) {
  for (std::size_t round = 1; round <= 3; ++round) {
    begin(stream);
    for (std::size_t i = 0; i < round; ++i) note(stream, 0);
    EXPECT_EQ(nodes(end(stream)).size(), round);
  }
}

TEST_F(SimulatedCapture, AnEventCapturedOnceCanBeRecordedAndWaitedForAgain) {
  const CUevent event = ready.create_event();
  begin(stream);
  EXPECT_EQ(api.event_record(event, stream), CUDA_SUCCESS);
  end(stream);
  note(stream, 1);
  EXPECT_EQ(api.event_record(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_wait_event(other, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(status(other), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(api.event_synchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(order, Marks{1});
}

TEST_F(SimulatedCapture, ADestroyedForkLeavesWhatItCaptured) {
  const CUstream fork = ready.driver.create_stream();
  begin(stream);
  depend(fork, stream);
  note(fork, 1);
  depend(stream, fork);
  EXPECT_EQ(api.stream_destroy(fork), CUDA_SUCCESS);
  EXPECT_EQ(nodes(end(stream)).size(), 1u);
}

TEST_F(SimulatedCapture, ADestroyedOriginEndsTheCaptureForAllItsStreams) {
  const CUstream origin = ready.driver.create_stream();
  const auto held = std::make_shared<int>(0);
  begin(origin);
  ready.driver.launch(origin, {}, {}, 0ns, [held] {});
  depend(other, origin);
  EXPECT_EQ(api.stream_destroy(origin), CUDA_SUCCESS);
  EXPECT_EQ(status(other), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(held.use_count(), 1);  // the graph went with it
  CUgraph graph = nullptr;
  EXPECT_EQ(api.stream_end_capture(origin, &graph), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(SimulatedCapture, ARelaxedCaptureMayEndOnAnotherThread) {
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  note(stream, 1);
  CUgraph graph = nullptr;
  std::thread([&] {
    ready.use(0);
    graph = end(stream);
  }).join();
  EXPECT_EQ(nodes(graph).size(), 1u);
}

TEST_F(SimulatedCapture, ThreadsExchangeTheirModesEachForItself) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  EXPECT_EQ(api.thread_exchange_stream_capture_mode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);  // the default
  std::thread([&] {
    CUstreamCaptureMode theirs = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    EXPECT_EQ(api.thread_exchange_stream_capture_mode(&theirs), CUDA_SUCCESS);
    EXPECT_EQ(theirs, CU_STREAM_CAPTURE_MODE_GLOBAL);
  }).join();
  EXPECT_EQ(api.thread_exchange_stream_capture_mode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
}

}  // namespace
}  // namespace cistern
