// Graphs: CUDA Driver API, "Graph Management"; CUDA C++ Programming Guide, "CUDA Graphs".
#include <cistern/error.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "tests/simulated/capture_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::KiB;
using Marks = std::vector<int>;

class SimulatedGraphs : public cistern::testing::CaptureTest {
 protected:
  void launch(CUgraphExec exec, CUstream on) { EXPECT_EQ(api.graph_launch(exec, on), CUDA_SUCCESS); }
  // first, then left beside right, then last
  CUgraph diamond() {
    return capture([&](CUstream on) {
      note(on, 1, 1ms);
      depend(other, on);
      note(on, 2, 2ms);
      note(other, 3, 2ms);
      depend(on, other);
      note(on, 4, 1ms);
    });
  }
  std::string dot(CUgraph graph, unsigned flags) {
    const std::string path = ::testing::TempDir() + "cistern_graph.dot";
    EXPECT_EQ(api.graph_debug_dot_print(graph, path.c_str(), flags), CUDA_SUCCESS);
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
};

// --- Launches ---------------------------------------------------------------------------

TEST_F(SimulatedGraphs, EachLaunchRunsEveryNodeAgain) {
  const CUgraphExec exec = instantiate(capture([&](CUstream on) {
    note(on, 1);
    note(on, 2);
  }));
  for (int i = 0; i < 3; ++i) launch(exec, stream);
  EXPECT_EQ(order, Marks());
  EXPECT_EQ(api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(order, (Marks{1, 2, 1, 2, 1, 2}));
}

TEST_F(SimulatedGraphs, IndependentBranchesOverlap) {
  launch(instantiate(diamond()), stream);
  ready.driver.run_until_idle();
  EXPECT_EQ(order.front(), 1);
  EXPECT_EQ(order.back(), 4);
  EXPECT_EQ(ready.driver.virtual_time(), 4ms);  // 1 + 2 + 1, not 6
}

TEST_F(SimulatedGraphs, ALaunchIsOrderedInItsStreamAsOnePieceOfWork) {
  const CUgraphExec exec = instantiate(diamond());
  note(stream, 0, 5ms);
  launch(exec, stream);
  note(stream, 5);
  ready.driver.run_until_idle();
  EXPECT_EQ(order.front(), 0);
  EXPECT_EQ(order.back(), 5);
  EXPECT_EQ(ready.driver.virtual_time(), 9ms);
}

TEST_F(SimulatedGraphs, AGraphRunsOnAnyStreamTheCapturedOneIncluded) {
  begin(stream);
  note(stream, 1);
  const CUgraphExec exec = instantiate(end(stream));
  launch(exec, stream);
  launch(exec, other);
  launch(exec, nullptr);
  launch(exec, CU_STREAM_PER_THREAD);
  ready.driver.run_until_idle();
  EXPECT_EQ(order, (Marks{1, 1, 1, 1}));
}

// cuGraphLaunch: "Only one instance of hGraphExec may be executing at a time."
TEST_F(SimulatedGraphs, LaunchesOfOneExecutableGraphRunOneAfterTheOther) {
  const CUgraphExec exec = instantiate(capture([&](CUstream on) { note(on, 1, 3ms); }));
  note(stream, 0, 10ms);
  launch(exec, stream);
  launch(exec, other);
  ready.driver.run_until_idle(other);
  EXPECT_EQ(order, (Marks{0, 1, 1}));
  EXPECT_EQ(ready.driver.virtual_time(), 16ms);
}

TEST_F(SimulatedGraphs, TwoExecutableGraphsOfOneGraphRunAtTheSameTime) {
  const CUgraph graph = capture([&](CUstream on) { note(on, 1, 3ms); });
  launch(instantiate(graph), stream);
  launch(instantiate(graph), other);
  ready.driver.run_until_idle();
  EXPECT_EQ(ready.driver.virtual_time(), 3ms);
}

TEST_F(SimulatedGraphs, AnEmptyGraphKeepsItsPlaceInTheStream) {
  const CUgraphExec exec = instantiate(capture([](CUstream) {}));
  note(stream, 1);
  launch(exec, stream);
  EXPECT_EQ(api.stream_query(stream), CUDA_ERROR_NOT_READY);
  note(stream, 2);
  EXPECT_EQ(api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(order, (Marks{1, 2}));
}

TEST_F(SimulatedGraphs, EventsAndWaitsAroundALaunchSeeAllOfIt) {
  const CUevent event = ready.create_event();
  launch(instantiate(diamond()), stream);
  EXPECT_EQ(api.event_record(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_wait_event(other, event, 0), CUDA_SUCCESS);
  note(other, 5);
  EXPECT_EQ(api.stream_synchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(order.size(), 5u);
  EXPECT_EQ(order.back(), 5);
}

TEST_F(SimulatedGraphs, CopiesAndFillsReadTheirParametersAtCaptureAndTheBytesAtLaunch) {
  const CUdeviceptr memory = ready.allocate(KiB);
  std::vector<unsigned char> source(KiB, 1);
  std::vector<unsigned char> destination(KiB);
  const auto address = [](auto& bytes) { return reinterpret_cast<CUdeviceptr>(bytes.data()); };
  const CUgraphExec exec = instantiate(capture([&](CUstream on) {
    EXPECT_EQ(api.memcpy_async(memory, address(source), KiB, on), CUDA_SUCCESS);
    EXPECT_EQ(api.memset_d8_async(memory, 9, 1, on), CUDA_SUCCESS);
    EXPECT_EQ(api.memcpy_async(address(destination), memory, KiB, on), CUDA_SUCCESS);
  }));
  for (const unsigned char value : {std::uint8_t{3}, std::uint8_t{4}}) {
    source.assign(KiB, value);
    launch(exec, stream);
    EXPECT_EQ(api.stream_synchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(destination[0], 9);
    EXPECT_EQ(destination[1], value);
  }
}

TEST_F(SimulatedGraphs, MemoryFreedSinceTheCaptureFailsTheLaunch) {
  const CUdeviceptr memory = ready.allocate(KiB);
  const CUgraphExec exec =
      instantiate(capture([&](CUstream on) { EXPECT_EQ(api.memset_d8_async(memory, 1, KiB, on), CUDA_SUCCESS); }));
  EXPECT_EQ(api.mem_free(memory), CUDA_SUCCESS);
  launch(exec, stream);
  EXPECT_EQ(api.stream_synchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(api.graph_launch(exec, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(SimulatedGraphs, HostFunctionsInAGraphMayNotCallTheDriver) {
  struct Seen {
    const DriverApi* api;
    CUresult result = CUDA_SUCCESS;
  } seen{&api};
  const auto function = [](void* data) {
    auto& state = *static_cast<Seen*>(data);
    CUdeviceptr memory = 0;
    state.result = state.api->mem_alloc(&memory, 1);
  };
  launch(instantiate(capture([&](CUstream on) { EXPECT_EQ(api.launch_host_func(on, function, &seen), CUDA_SUCCESS); })),
         stream);
  ready.driver.run_until_idle();
  EXPECT_EQ(seen.result, CUDA_ERROR_NOT_PERMITTED);
}

// --- Lives ------------------------------------------------------------------------------

TEST_F(SimulatedGraphs, AnExecutableGraphOutlivesItsGraphAndALaunchItsExecutableGraph) {
  const auto held = std::make_shared<int>(0);
  const CUgraph graph =
      capture([&](CUstream on) { ready.driver.launch(on, {}, {}, 0ns, [this, held] { order.push_back(1); }); });
  const CUgraphExec exec = instantiate(graph);
  EXPECT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
  launch(exec, stream);
  EXPECT_EQ(api.graph_exec_destroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(held.use_count(), 2);
  EXPECT_EQ(api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(order, Marks{1});
  EXPECT_EQ(held.use_count(), 1);
}

TEST_F(SimulatedGraphs, WhatNodesHoldIsReleasedWithNoLockHeld) {
  struct Caller {
    explicit Caller(SimulatedDriver* the_driver, int* count) : driver(the_driver), released(count) {}
    ~Caller() {
      (void)driver->virtual_time();  // takes the lock
      ++*released;
    }
    SimulatedDriver* driver;
    int* released;
  };
  int released = 0;
  const auto hold = [&](CUstream on) {
    ready.driver.launch(on, {}, {}, 0ns,
                        [caller = std::make_shared<Caller>(&ready.driver, &released)] { EXPECT_NE(caller, nullptr); });
  };
  EXPECT_EQ(api.graph_destroy(capture(hold)), CUDA_SUCCESS);
  EXPECT_EQ(released, 1);
  const CUgraph graph = capture(hold);
  const CUgraphExec exec = instantiate(graph);
  EXPECT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(released, 1);
  EXPECT_EQ(api.graph_exec_destroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(released, 2);
  begin(stream);
  hold(stream);
  EXPECT_EQ(api.stream_query(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_THROW(hold(stream), DriverError);
  EXPECT_EQ(released, 3);
  expect_invalidated(stream);
  EXPECT_EQ(released, 4);
}

TEST_F(SimulatedGraphs, HandlesThatMeanNothingAreRefused) {
  const CUgraph graph = capture([&](CUstream on) { note(on, 1); });
  const CUgraphNode node = nodes(graph).front();
  const CUgraphExec exec = instantiate(graph);
  EXPECT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(api.graph_exec_destroy(exec), CUDA_SUCCESS);
  CUgraphExec made = nullptr;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::size_t count = 0;
  EXPECT_EQ(api.graph_destroy(graph), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_destroy(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_exec_destroy(exec), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_instantiate(&made, graph, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_instantiate(nullptr, capture([](CUstream) {}), 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_launch(exec, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_upload(exec, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_get_nodes(graph, nullptr, &count), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_get_edges(graph, nullptr, nullptr, &count), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_node_get_type(node, &type), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_debug_dot_print(graph, "unused", 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SimulatedGraphs, ALaunchOnAStreamThatIsGoneRunsNothing) {
  const CUgraphExec exec = instantiate(capture([&](CUstream on) { note(on, 1); }));
  const CUstream gone = ready.driver.create_stream();
  EXPECT_EQ(api.stream_destroy(gone), CUDA_SUCCESS);
  EXPECT_EQ(api.graph_launch(exec, gone), CUDA_ERROR_INVALID_HANDLE);
  ready.driver.run_until_idle();
  EXPECT_EQ(order, Marks());
}

TEST_F(SimulatedGraphs, ALaunchWhoseExternalEventIsGoneRunsNothing) {
  const CUevent event = ready.create_event();
  const CUgraphExec exec = instantiate(capture([&](CUstream on) {
    note(on, 1);
    EXPECT_EQ(api.event_record_with_flags(event, on, CU_EVENT_RECORD_EXTERNAL), CUDA_SUCCESS);
  }));
  EXPECT_EQ(api.event_destroy(event), CUDA_SUCCESS);
  EXPECT_EQ(api.graph_launch(exec, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.stream_query(stream), CUDA_SUCCESS);
  EXPECT_EQ(order, Marks());
}

// cuStreamGetCaptureInfo: the graph under capture is the capture's until it ends.
TEST_F(SimulatedGraphs, AGraphUnderCaptureCanBeReadAndInstantiatedButNotDestroyed) {
  begin(stream);
  note(stream, 1);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  EXPECT_EQ(api.stream_get_capture_info(stream, &status, nullptr, &graph, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(api.graph_destroy(graph), CUDA_ERROR_INVALID_VALUE);
  const CUgraphExec early = instantiate(graph);
  note(stream, 2);
  EXPECT_EQ(nodes(graph).size(), 2u);
  EXPECT_EQ(end(stream), graph);
  launch(early, stream);
  ready.driver.run_until_idle();
  EXPECT_EQ(order, Marks{1});
}

// --- Instantiation ----------------------------------------------------------------------

TEST_F(SimulatedGraphs, InstantiationChecksItsFlags) {
  const CUgraph graph = capture([&](CUstream on) { note(on, 1); });
  const CUgraph host = capture([&](CUstream on) {
    const auto nothing = [](void*) {};
    EXPECT_EQ(api.launch_host_func(on, nothing, nullptr), CUDA_SUCCESS);
  });
  const CUgraph empty = capture([](CUstream) {});
  CUgraphExec exec = nullptr;
  constexpr unsigned long long auto_free = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
  constexpr unsigned long long device = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
  constexpr unsigned long long priority = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  for (const unsigned long long flags : {auto_free, device, priority, auto_free | priority, device | priority}) {
    EXPECT_EQ(api.graph_instantiate(&exec, graph, flags), CUDA_SUCCESS) << flags;
  }
  EXPECT_EQ(api.graph_instantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_instantiate(&exec, graph, auto_free | device), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_instantiate(&exec, graph, 16), CUDA_ERROR_INVALID_VALUE);
  // A graph for the device holds kernels, copies and fills, and is not empty.
  EXPECT_EQ(api.graph_instantiate(&exec, host, device), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_instantiate(&exec, empty, device), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SimulatedGraphs, AnUploadRunsNothing) {
  const CUgraphExec exec = instantiate(capture([&](CUstream on) { note(on, 1); }));
  EXPECT_EQ(api.graph_upload(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(order, Marks());
}

// --- What graphs tell of themselves -----------------------------------------------------

// cuGraphGetNodes: "If numNodes is higher than the actual number of nodes, the remaining
// entries will be set to NULL, and the number of nodes actually obtained returned in numNodes."
TEST_F(SimulatedGraphs, NodesAreListedIntoTheRoomThereIs) {
  const CUgraph graph = diamond();
  const std::vector<CUgraphNode> all = nodes(graph);
  ASSERT_EQ(all.size(), 4u);
  const CUgraphNode junk = reinterpret_cast<CUgraphNode>(1);
  std::vector<CUgraphNode> listed(6, junk);
  std::size_t count = 6;
  EXPECT_EQ(api.graph_get_nodes(graph, listed.data(), &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 4u);
  EXPECT_EQ(std::vector(listed.begin(), listed.begin() + 4), all);
  EXPECT_EQ(listed[4], nullptr);
  EXPECT_EQ(listed[5], nullptr);
  listed.assign(6, junk);
  count = 2;
  EXPECT_EQ(api.graph_get_nodes(graph, listed.data(), &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(listed[1], all[1]);
  EXPECT_EQ(listed[2], junk);
  EXPECT_EQ(api.graph_get_nodes(graph, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SimulatedGraphs, EdgesAreListedIntoTheRoomThereIs) {
  const CUgraph graph = diamond();
  EXPECT_EQ(edges(graph), (Edges{{0, 1}, {0, 2}, {1, 3}, {2, 3}}));
  const CUgraphNode junk = reinterpret_cast<CUgraphNode>(1);
  std::vector<CUgraphNode> from(5, junk);
  std::vector<CUgraphNode> to(5, junk);
  std::size_t count = 5;
  EXPECT_EQ(api.graph_get_edges(graph, from.data(), to.data(), &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 4u);
  EXPECT_EQ(from[4], nullptr);
  EXPECT_EQ(to[4], nullptr);
  to.assign(5, junk);
  count = 3;
  EXPECT_EQ(api.graph_get_edges(graph, from.data(), to.data(), &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(to[3], junk);
  EXPECT_EQ(api.graph_get_edges(graph, from.data(), nullptr, &count), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_get_edges(graph, nullptr, to.data(), &count), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SimulatedGraphs, TheDotTextNamesNodesAndEdgesAndMoreOnRequest) {
  const CUdeviceptr memory = ready.allocate(KiB);
  const CUgraph graph = capture([&](CUstream on) {
    ready.driver.launch(on, {}, {}, 5ns, {}, "say \"hello\"");
    EXPECT_EQ(api.memset_d8_async(memory, 1, KiB, on), CUDA_SUCCESS);
  });
  const std::string plain = dot(graph, 0);
  EXPECT_EQ(plain.rfind("digraph", 0), 0u);
  EXPECT_NE(plain.find("0: kernel say \\\"hello\\\""), std::string::npos) << plain;
  EXPECT_NE(plain.find("1: fill"), std::string::npos);
  EXPECT_NE(plain.find("n0 -> n1"), std::string::npos);
  EXPECT_EQ(plain.find("writes"), std::string::npos);
  EXPECT_NE(dot(graph, CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS).find("writes 1024 B"), std::string::npos);
  EXPECT_EQ(dot(graph, CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS).find("writes"), std::string::npos);
  EXPECT_NE(dot(graph, CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES).find("handle 0x"), std::string::npos);
  const std::string verbose = dot(graph, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE);
  for (const char* word : {"writes 1024 B", "handle 0x", "priority 0", "duration 5 ns"}) {
    EXPECT_NE(verbose.find(word), std::string::npos) << word;
  }
  EXPECT_EQ(api.graph_debug_dot_print(graph, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_debug_dot_print(graph, "/nowhere/at/all", 0), CUDA_ERROR_OPERATING_SYSTEM);
}

// --- User objects -----------------------------------------------------------------------

// Programming Guide, "CUDA User Objects".
class SimulatedUserObjects : public SimulatedGraphs {
 protected:
  struct Seen {
    const DriverApi* api;
    int destroyed = 0;
    CUresult result = CUDA_SUCCESS;
  };
  CUuserObject create(unsigned references = 1) {
    const auto destroy = [](void* data) {
      auto& state = *static_cast<Seen*>(data);
      ++state.destroyed;
      state.result = state.api->ctx_synchronize();
    };
    CUuserObject object = nullptr;
    EXPECT_EQ(api.user_object_create(&object, &seen, destroy, references, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
              CUDA_SUCCESS);
    return object;
  }
  Seen seen{&api};
};

TEST_F(SimulatedUserObjects, AnObjectGoesWithItsLastReference) {
  const CUuserObject object = create(3);
  EXPECT_EQ(api.user_object_release(object, 2), CUDA_SUCCESS);
  EXPECT_EQ(seen.destroyed, 0);
  EXPECT_EQ(api.user_object_release(object, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.user_object_release(object, 1), CUDA_SUCCESS);
  EXPECT_EQ(seen.destroyed, 1);
  EXPECT_EQ(seen.result, CUDA_ERROR_NOT_PERMITTED);  // a destructor may call nothing of the driver
  EXPECT_EQ(api.user_object_release(object, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SimulatedUserObjects, AGraphItsExecutableGraphAndItsLaunchKeepTheObject) {
  const CUuserObject object = create();
  const CUgraph graph = capture([&](CUstream on) { note(on, 1); });
  EXPECT_EQ(api.graph_retain_user_object(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE), CUDA_SUCCESS);
  EXPECT_EQ(api.user_object_release(object, 1), CUDA_ERROR_INVALID_VALUE);  // it was moved
  const CUgraphExec exec = instantiate(graph);
  EXPECT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(seen.destroyed, 0);
  launch(exec, stream);
  EXPECT_EQ(api.graph_exec_destroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(seen.destroyed, 0);
  EXPECT_EQ(api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(seen.destroyed, 1);
}

TEST_F(SimulatedUserObjects, AGraphsReferencesAreItsOwn) {
  const CUuserObject object = create();
  const CUgraph graph = capture([](CUstream) {});
  EXPECT_EQ(api.graph_retain_user_object(graph, object, 2, 0), CUDA_SUCCESS);
  EXPECT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(seen.destroyed, 0);
  EXPECT_EQ(api.user_object_release(object, 1), CUDA_SUCCESS);
  EXPECT_EQ(seen.destroyed, 1);
}

TEST_F(SimulatedUserObjects, WrongArgumentsChangeNothing) {
  const CUuserObject object = create();
  const CUgraph graph = capture([](CUstream) {});
  const auto nothing = [](void*) {};
  CUuserObject made = nullptr;
  EXPECT_EQ(api.user_object_create(&made, nullptr, nothing, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.user_object_create(&made, nullptr, nothing, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.user_object_create(&made, nullptr, nullptr, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.user_object_create(nullptr, nullptr, nothing, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.user_object_release(object, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_retain_user_object(graph, object, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_retain_user_object(graph, object, 1, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_retain_user_object(graph, object, 2, CU_GRAPH_USER_OBJECT_MOVE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_retain_user_object(nullptr, object, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_retain_user_object(graph, nullptr, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.user_object_release(object, 1), CUDA_SUCCESS);
  EXPECT_EQ(seen.destroyed, 1);
}

TEST_F(SimulatedUserObjects, HandlesOfObjectsThatAreGoneAreSwept) {
  for (int i = 0; i < 1000; ++i) {
    const CUgraph graph = capture([](CUstream) {});
    EXPECT_EQ(api.graph_retain_user_object(graph, create(), 1, CU_GRAPH_USER_OBJECT_MOVE), CUDA_SUCCESS);
    EXPECT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
  }
  EXPECT_EQ(seen.destroyed, 1000);
}

}  // namespace
}  // namespace cistern
