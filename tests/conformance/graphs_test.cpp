// Graphs: structure, launches and their order, update.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "tests/conformance/graph_case.h"

namespace cistern::conformance {
namespace {

#define SECTION "Driver API, Graph Management, "

class Graphs : public GraphCase {
 protected:
  void launch(CUgraphExec exec, CUstream stream) { EXPECT_OK(api.graph_launch(exec, stream)); }
  // A graph of one fill.
  CUgraph graph_of_fill(CUdeviceptr memory, unsigned char value) {
    const CUstream stream = make_stream();
    begin(stream);
    fill(memory, value, 4096, stream);
    return end(stream);
  }
};

STATEMENT(C195, Graphs, ALaunchRunsTheWork, SECTION "cuGraphLaunch", "Each launch executes the graph's work once.") {
  const CUstream stream = make_stream();
  begin(stream);
  note(stream, 1);
  const CUgraphExec exec = instantiate(end(stream));
  EXPECT_TRUE(log.numbers().empty());
  launch(exec, stream);
  launch(exec, stream);
  finish(stream);
  EXPECT_EQ(log.numbers(), (std::vector<int>{1, 1}));
}

STATEMENT(C196, Graphs, AnyStreamLaunches, SECTION "cuGraphLaunch",
          "A graph may be launched in another stream than it was captured from.") {
  const CUdeviceptr memory = make_memory();
  const CUgraphExec exec = instantiate(graph_of_fill(memory, 3));
  const CUstream other = make_stream();
  launch(exec, other);
  finish(other);
  EXPECT_TRUE(holds(memory, 4096, 3));
}

STATEMENT(C197, Graphs, ALaunchComesAfterTheStreamsWork, SECTION "cuGraphLaunch",
          "A launch is ordered behind the work that its stream was given before.") {
  const CUdeviceptr memory = make_memory();
  const CUgraphExec exec = instantiate(graph_of_fill(memory, 3));
  const CUstream stream = make_stream();
  Gate& gate = hold(stream);
  launch(exec, stream);
  EXPECT_TRUE(holds(memory, 4096, 0));
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(stream));
  gate.open();
  finish(stream);
  EXPECT_TRUE(holds(memory, 4096, 3));
}

STATEMENT(C198, Graphs, LaterWorkWaitsForTheWholeGraph, SECTION "cuGraphLaunch",
          "Work that the stream is given after a launch waits for all of the graph, every branch of it.") {
  const CUstream origin = make_stream(), side = make_stream(), stream = make_stream();
  const CUevent fork = make_event(), join = make_event();
  const CUdeviceptr a = make_memory(), b = make_memory();
  Gate& gate = make_gate();
  begin(origin);
  record(fork, origin);
  wait(side, fork);
  pass(side, gate);
  fill(a, 1, 4096, origin);
  record(join, side);
  wait(origin, join);
  const CUgraphExec exec = instantiate(end(origin));
  launch(exec, stream);
  fill(b, 2, 4096, stream);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(stream));
  EXPECT_TRUE(holds(b, 4096, 0));
  gate.open();
  finish(stream);
  EXPECT_TRUE(holds(a, 4096, 1));
  EXPECT_TRUE(holds(b, 4096, 2));
}

STATEMENT(C199, Graphs, OneInstanceRunsAtATime, SECTION "cuGraphLaunch",
          "A launch is ordered behind earlier launches of the same executable graph, in other streams too.") {
  const CUstream stream = make_stream(), one = make_stream(), other = make_stream();
  Gate& gate = make_gate();
  const CUdeviceptr memory = make_memory();
  begin(stream);
  pass(stream, gate);
  fill(memory, 1, 4096, stream);
  const CUgraphExec exec = instantiate(end(stream));
  launch(exec, one);
  launch(exec, other);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(other));
  EXPECT_LE(gate.arrivals(), 1);
  gate.open();
  finish(other);
  EXPECT_OK(api.stream_query(one));
  EXPECT_EQ(gate.arrivals(), 2);
}

STATEMENT(C200, Graphs, DependenciesHoldAtEachLaunch, "Programming Guide, CUDA Graphs, Graph Structure",
          "A node runs after all nodes that it depends on, at each launch.") {
  const CUstream origin = make_stream(), side = make_stream();
  const CUevent fork = make_event(), join = make_event();
  begin(origin);
  note(origin, 1);
  record(fork, origin);
  wait(side, fork);
  note(side, 2);
  note(origin, 2);
  record(join, side);
  wait(origin, join);
  note(origin, 3);
  const CUgraphExec exec = instantiate(end(origin));
  for (int i = 0; i < 3; ++i) launch(exec, origin);
  finish(origin);
  EXPECT_EQ(log.numbers(), (std::vector<int>{1, 2, 2, 3, 1, 2, 2, 3, 1, 2, 2, 3}));
}

STATEMENT(C201, Graphs, TheExecutableOutlivesTheGraph, SECTION "cuGraphInstantiateWithFlags",
          "An executable graph is a snapshot: it works after the graph was destroyed.") {
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  begin(stream);
  fill(memory, 4, 4096, stream);
  CUgraph graph = nullptr;
  ASSERT_OK(api.stream_end_capture(stream, &graph));
  const CUgraphExec exec = instantiate(graph);
  EXPECT_OK(api.graph_destroy(graph));
  launch(exec, stream);
  finish(stream);
  EXPECT_TRUE(holds(memory, 4096, 4));
}

STATEMENT(C202, Graphs, AGraphInFlightMayBeDestroyed, SECTION "cuGraphExecDestroy",
          "An executable graph that is destroyed while it runs is not terminated.") {
  const CUdeviceptr memory = make_memory();
  const CUstream stream = make_stream();
  CUgraphExec exec = nullptr;
  ASSERT_OK(api.graph_instantiate(&exec, graph_of_fill(memory, 5), 0));
  Gate& gate = hold(stream);
  launch(exec, stream);
  EXPECT_OK(api.graph_exec_destroy(exec));
  gate.open();
  finish(stream);
  EXPECT_TRUE(holds(memory, 4096, 5));
}

STATEMENT(C203, Graphs, InstantiationFlagsAreChecked, SECTION "cuGraphInstantiate",
          "Flags other than the documented ones are `CUDA_ERROR_INVALID_VALUE`.") {
  CUgraphExec exec = nullptr;
  const CUgraph graph = graph_of_fill(make_memory(), 1);
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.graph_instantiate(&exec, graph, 0x1000));
}

STATEMENT(C204, Graphs, OneGraphHasManyExecutables, SECTION "cuGraphLaunch",
          "To run a graph concurrently it is instantiated several times: one instance that is held up does not hold up "
          "another.") {
  const CUdeviceptr memory = make_memory();
  const CUgraph graph = graph_of_fill(memory, 6);
  const CUgraphExec one = instantiate(graph), other = instantiate(graph);
  const CUstream held = make_stream(), free = make_stream();
  Gate& gate = hold(held);
  launch(one, held);
  launch(other, free);
  finish(free);
  EXPECT_TRUE(holds(memory, 4096, 6));
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(held));
  gate.open();
}

STATEMENT(C205, Graphs, NodesAreCountedThenListed, SECTION "cuGraphGetNodes",
          "Without an array the nodes are counted; in an array that is larger the rest is null and the count is the "
          "graph's.") {
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  begin(stream);
  fill(memory, 1, 4096, stream);
  fill(memory, 2, 4096, stream);
  const CUgraph graph = end(stream);
  std::size_t count = 0;
  EXPECT_OK(api.graph_get_nodes(graph, nullptr, &count));
  EXPECT_EQ(count, 2u);
  auto* const something = reinterpret_cast<CUgraphNode>(std::size_t{8});
  std::vector<CUgraphNode> all(4, something);
  count = all.size();
  EXPECT_OK(api.graph_get_nodes(graph, all.data(), &count));
  EXPECT_EQ(count, 2u);
  EXPECT_NE(all[1], nullptr);
  EXPECT_EQ(all[2], nullptr);
  EXPECT_EQ(all[3], nullptr);
}

STATEMENT(
    C206, Graphs, EdgesAreCountedThenListed, SECTION "cuGraphGetEdges",
    "Without arrays the edges are counted; in arrays that are larger the rest is null and the count is the graph's.") {
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  begin(stream);
  fill(memory, 1, 4096, stream);
  note(stream, 1);
  const CUgraph graph = end(stream);
  std::size_t count = 0;
  EXPECT_OK(api.graph_get_edges(graph, nullptr, nullptr, &count));
  EXPECT_EQ(count, 1u);
  auto* const something = reinterpret_cast<CUgraphNode>(std::size_t{8});
  std::vector<CUgraphNode> from(2, something), to(2, something);
  count = 2;
  EXPECT_OK(api.graph_get_edges(graph, from.data(), to.data(), &count));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(type(from[0]), CU_GRAPH_NODE_TYPE_MEMSET);
  EXPECT_EQ(type(to[0]), CU_GRAPH_NODE_TYPE_HOST);
  EXPECT_EQ(from[1], nullptr);
  EXPECT_EQ(to[1], nullptr);
}

STATEMENT(C207, Graphs, AnUpdateChangesParameters, SECTION "cuGraphExecUpdate",
          "An executable graph takes over the parameters of a graph of the same topology, for launches from then on.") {
  const CUdeviceptr memory = make_memory();
  const CUstream stream = make_stream();
  const CUgraphExec exec = instantiate(graph_of_fill(memory, 1));
  CUgraphExecUpdateResultInfo result{};
  EXPECT_OK(api.graph_exec_update(exec, graph_of_fill(memory, 9), &result));
  EXPECT_EQ(result.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  launch(exec, stream);
  finish(stream);
  EXPECT_TRUE(holds(memory, 4096, 9));
}

STATEMENT(C208, Graphs, AnUpdateNeedsAsManyNodes, SECTION "cuGraphExecUpdate",
          "Where the numbers of nodes differ the update fails: topology changed, without a node.") {
  const CUdeviceptr memory = make_memory();
  const CUstream stream = make_stream();
  const CUgraphExec exec = instantiate(graph_of_fill(memory, 1));
  begin(stream);
  fill(memory, 2, 4096, stream);
  fill(memory, 3, 4096, stream);
  CUgraphExecUpdateResultInfo result{};
  EXPECT_RESULT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, api.graph_exec_update(exec, end(stream), &result));
  EXPECT_EQ(result.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  EXPECT_EQ(result.errorNode, nullptr);
}

STATEMENT(C209, Graphs, AnUpdateNeedsTheSameTypes, SECTION "cuGraphExecUpdate",
          "Where a node's type differs the update fails and names the node.") {
  const CUdeviceptr memory = make_memory();
  const CUstream stream = make_stream();
  const CUgraphExec exec = instantiate(graph_of_fill(memory, 1));
  begin(stream);
  note(stream, 1);
  const CUgraph graph = end(stream);
  CUgraphExecUpdateResultInfo result{};
  EXPECT_RESULT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, api.graph_exec_update(exec, graph, &result));
  EXPECT_EQ(result.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  EXPECT_EQ(result.errorNode, nodes(graph).at(0));
}

STATEMENT(C210, Graphs, AnUploadDoesNotRun, SECTION "cuGraphUpload", "An upload does not execute the graph.") {
  const CUdeviceptr memory = make_memory();
  const CUstream stream = make_stream();
  const CUgraphExec exec = instantiate(graph_of_fill(memory, 1));
  EXPECT_OK(api.graph_upload(exec, stream));
  finish(stream);
  EXPECT_TRUE(holds(memory, 4096, 0));
  launch(exec, stream);
  finish(stream);
  EXPECT_TRUE(holds(memory, 4096, 1));
}

STATEMENT(C211, Graphs, ADotFileDescribesIt, SECTION "cuGraphDebugDotPrint",
          "cuGraphDebugDotPrint writes a description of the graph in DOT to the path.") {
  std::string path = ::testing::TempDir() + "conformance-" + std::to_string(getpid()) + ".dot";
  EXPECT_OK(api.graph_debug_dot_print(graph_of_fill(make_memory(), 1), path.c_str(), 0));
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_NE(text.str().find("digraph"), std::string::npos);
  std::remove(path.c_str());
}

STATEMENT(C212, Graphs, CopiesReadWhenTheyRun, "Programming Guide, CUDA Graphs",
          "A node reads memory when it runs, not when it was captured: each launch sees what is there then.") {
  const CUdeviceptr from = make_memory(), to = make_memory();
  const CUstream stream = make_stream();
  begin(stream);
  copy(to, from, 4096, stream);
  const CUgraphExec exec = instantiate(end(stream));
  for (const auto value : {static_cast<unsigned char>(1), static_cast<unsigned char>(2)}) {
    fill(from, value, 4096, stream);
    launch(exec, stream);
    finish(stream);
    EXPECT_TRUE(holds(to, 4096, value));
  }
}

STATEMENT(C213, Graphs, AnExternalRecordHappensAtTheLaunch, "Driver API, Event Management, cuEventRecordWithFlags",
          "An event whose record was captured as external is recorded by each launch.") {
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  begin(stream);
  EXPECT_OK(api.event_record_with_flags(event, stream, CU_EVENT_RECORD_EXTERNAL));
  const CUgraphExec exec = instantiate(end(stream));
  EXPECT_OK(api.event_query(event));
  Gate& gate = hold(stream);
  launch(exec, stream);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.event_query(event));
  gate.open();
  EXPECT_OK(api.event_synchronize(event));
}

STATEMENT(C214, Graphs, NullIsNoGraph, SECTION "cuGraphLaunch",
          "A null executable graph, or a null graph, is `CUDA_ERROR_INVALID_VALUE`.") {
  std::size_t count = 0;
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.graph_launch(nullptr, make_stream()));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.graph_get_nodes(nullptr, nullptr, &count));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.graph_destroy(nullptr));
}

#undef SECTION

}  // namespace
}  // namespace cistern::conformance
