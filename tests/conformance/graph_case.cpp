#include "tests/conformance/graph_case.h"

namespace cistern::conformance {

void GraphCase::give_back() {
  for (const CUgraphExec exec : execs_) EXPECT_OK(api.graph_exec_destroy(exec));
  for (const CUgraph graph : graphs_) EXPECT_OK(api.graph_destroy(graph));
}

void GraphCase::begin(CUstream stream, CUstreamCaptureMode mode) { EXPECT_OK(api.stream_begin_capture(stream, mode)); }

CUgraph GraphCase::end(CUstream stream) {
  CUgraph graph = nullptr;
  EXPECT_OK(api.stream_end_capture(stream, &graph));
  if (graph != nullptr) graphs_.push_back(graph);
  return graph;
}

void GraphCase::drop(CUstream stream) {
  CUgraph graph = nullptr;
  static_cast<void>(api.stream_end_capture(stream, &graph));
  if (graph != nullptr) graphs_.push_back(graph);
}

CUgraphExec GraphCase::instantiate(CUgraph graph) {
  CUgraphExec exec = nullptr;
  EXPECT_OK(api.graph_instantiate(&exec, graph, 0));
  if (exec != nullptr) execs_.push_back(exec);
  return exec;
}

CUstreamCaptureStatus GraphCase::status(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_OK(api.stream_is_capturing(stream, &status));
  return status;
}

unsigned long long GraphCase::capture_id(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  EXPECT_OK(api.stream_get_capture_info(stream, &status, &id, nullptr, nullptr, nullptr));
  return id;
}

std::vector<CUgraphNode> GraphCase::nodes(CUgraph graph) {
  std::size_t count = 0;
  EXPECT_OK(api.graph_get_nodes(graph, nullptr, &count));
  std::vector<CUgraphNode> all(count);
  if (count != 0) {
    EXPECT_OK(api.graph_get_nodes(graph, all.data(), &count));
  }
  return all;
}

std::vector<CUgraphNodeType> GraphCase::types(CUgraph graph) {
  std::vector<CUgraphNodeType> all;
  for (const CUgraphNode node : nodes(graph)) all.push_back(type(node));
  return all;
}

std::vector<GraphCase::Edge> GraphCase::edges(CUgraph graph) {
  std::size_t count = 0;
  EXPECT_OK(api.graph_get_edges(graph, nullptr, nullptr, &count));
  std::vector<CUgraphNode> from(count), to(count);
  if (count != 0) {
    EXPECT_OK(api.graph_get_edges(graph, from.data(), to.data(), &count));
  }
  std::vector<Edge> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back({from[i], to[i]});
  return all;
}

CUgraphNodeType GraphCase::type(CUgraphNode node) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  EXPECT_OK(api.graph_node_get_type(node, &type));
  return type;
}

}  // namespace cistern::conformance
