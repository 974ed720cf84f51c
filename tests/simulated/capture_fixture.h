#pragma once

// A simulated driver, and short words for capturing streams and reading graphs.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulated/driver_fixture.h"

namespace cistern::testing {

class CaptureTest : public ::testing::Test {
 protected:
  explicit CaptureTest(SimulatedOptions options = {.capacity_bytes = 64 * MiB}) : ready(std::move(options)) {}

  void begin(CUstream on, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED) {
    ASSERT_EQ(api.stream_begin_capture(on, mode), CUDA_SUCCESS);
  }
  CUgraph end(CUstream on) {
    CUgraph graph = nullptr;
    EXPECT_EQ(api.stream_end_capture(on, &graph), CUDA_SUCCESS);
    EXPECT_NE(graph, nullptr);
    return graph;
  }
  // What ends a capture that failed: `expected`, and no graph.
  void expect_end(CUstream on, CUresult expected) {
    CUgraph graph = reinterpret_cast<CUgraph>(1);
    EXPECT_EQ(api.stream_end_capture(on, &graph), expected);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(status(on), CU_STREAM_CAPTURE_STATUS_NONE);
  }
  // That the stream's capture was invalidated, and ends so.
  void expect_invalidated(CUstream origin) {
    EXPECT_EQ(status(origin), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    expect_end(origin, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  void expect_valid(CUstream origin) {
    EXPECT_EQ(status(origin), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_EQ(api.graph_destroy(end(origin)), CUDA_SUCCESS);
  }
  CUstreamCaptureStatus status(CUstream of) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    EXPECT_EQ(api.stream_is_capturing(of, &status), CUDA_SUCCESS);
    return status;
  }
  // What `to` captures next comes after what `from` has captured.
  void depend(CUstream to, CUstream from) {
    const CUevent event = ready.create_event();
    EXPECT_EQ(api.event_record(event, from), CUDA_SUCCESS);
    EXPECT_EQ(api.stream_wait_event(to, event, 0), CUDA_SUCCESS);
  }
  // A kernel that appends `mark` to `order`.
  void note(CUstream on, int mark, std::chrono::nanoseconds duration = {}) { ready.note(on, order, mark, duration); }

  CUgraphExec instantiate(CUgraph graph, unsigned long long flags = 0) {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(api.graph_instantiate(&exec, graph, flags), CUDA_SUCCESS);
    return exec;
  }
  // The graph of what `work` queues on a stream of its own.
  template <class Capture>
  CUgraph capture(Capture work) {
    const CUstream on = ready.driver.create_stream();
    begin(on);
    work(on);
    return end(on);
  }
  std::vector<CUgraphNode> nodes(CUgraph graph) {
    std::size_t count = 0;
    EXPECT_EQ(api.graph_get_nodes(graph, nullptr, &count), CUDA_SUCCESS);
    std::vector<CUgraphNode> nodes(count);
    EXPECT_EQ(api.graph_get_nodes(graph, nodes.data(), &count), CUDA_SUCCESS);
    return nodes;
  }
  std::vector<CUgraphNodeType> types(CUgraph graph) {
    std::vector<CUgraphNodeType> types;
    for (CUgraphNode node : nodes(graph)) {
      types.emplace_back();
      EXPECT_EQ(api.graph_node_get_type(node, &types.back()), CUDA_SUCCESS);
    }
    return types;
  }
  using Edges = std::vector<std::pair<std::size_t, std::size_t>>;
  // By the nodes' places.
  Edges edges(CUgraph graph) {
    const std::vector<CUgraphNode> all = nodes(graph);
    const auto place = [&all](CUgraphNode node) {
      return static_cast<std::size_t>(std::find(all.begin(), all.end(), node) - all.begin());
    };
    std::size_t count = 0;
    EXPECT_EQ(api.graph_get_edges(graph, nullptr, nullptr, &count), CUDA_SUCCESS);
    std::vector<CUgraphNode> from(count);
    std::vector<CUgraphNode> to(count);
    EXPECT_EQ(api.graph_get_edges(graph, from.data(), to.data(), &count), CUDA_SUCCESS);
    Edges edges;
    for (std::size_t i = 0; i < count; ++i) edges.emplace_back(place(from[i]), place(to[i]));
    return edges;
  }

  ReadyDriver ready;
  const DriverApi& api = ready.api;
  std::vector<int> order;
  const CUstream stream = ready.driver.create_stream();
  const CUstream other = ready.driver.create_stream();
};

}  // namespace cistern::testing
