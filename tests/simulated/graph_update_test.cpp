// Updates of executable graphs: CUDA Driver API, "Graph Management", cuGraphExecUpdate.
#include "tests/simulated/capture_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::KiB;
using cistern::testing::MiB;
using Marks = std::vector<int>;

class SimulatedGraphUpdates : public cistern::testing::CaptureTest {
 protected:
  SimulatedGraphUpdates() : CaptureTest({.devices = 2, .capacity_bytes = 16 * MiB}) {}

  CUgraphExecUpdateResultInfo update(CUgraphExec exec, CUgraph graph, CUresult expected) {
    CUgraphExecUpdateResultInfo info{};
    EXPECT_EQ(api.graph_exec_update(exec, graph, &info), expected);
    return info;
  }
  // That the update is refused so, and the executable graph runs what it ran.
  void expect_refused(CUgraph before, CUgraph after, CUgraphExecUpdateResult result, CUgraphNode node,
                      CUgraphNode from = nullptr, unsigned long long flags = 0) {
    const CUgraphExec exec = instantiate(before, flags);
    const auto info = update(exec, after, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT_EQ(info.result, result);
    EXPECT_EQ(info.errorNode, node);
    EXPECT_EQ(info.errorFromNode, from);
    // Its own graph still fits: what it runs has not changed.
    EXPECT_EQ(update(exec, before, CUDA_SUCCESS).result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    EXPECT_EQ(api.graph_exec_destroy(exec), CUDA_SUCCESS);
  }
  CUgraph kernels(const Marks& marks) {
    return capture([&](CUstream on) {
      for (const int mark : marks) note(on, mark);
    });
  }
  // `branches` kernels side by side.
  CUgraph fan(std::size_t branches) {
    return capture([&](CUstream on) {
      for (std::size_t i = 1; i < branches; ++i) {
        const CUstream fork = ready.driver.create_stream();
        depend(fork, on);
        note(fork, 0);
        joined.push_back(fork);
      }
      note(on, 0);
      for (const CUstream fork : joined) depend(on, fork);
      joined.clear();
    });
  }
  CUgraph copy(CUdeviceptr destination, CUdeviceptr source) {
    return capture([&](CUstream on) { EXPECT_EQ(api.memcpy_async(destination, source, 64, on), CUDA_SUCCESS); });
  }
  CUgraph fill(CUdeviceptr destination, std::size_t bytes = 64) {
    return capture([&](CUstream on) { EXPECT_EQ(api.memset_d8_async(destination, 1, bytes, on), CUDA_SUCCESS); });
  }
  CUdeviceptr allocate_on(int device) {
    ready.use(device);
    const CUdeviceptr memory = ready.allocate(KiB);
    ready.use(0);
    return memory;
  }

  std::vector<CUstream> joined;
};

TEST_F(SimulatedGraphUpdates, LaunchesRunTheNewParametersAndThoseBeforeTheOld) {
  const CUgraphExec exec = instantiate(kernels({1, 2}));
  EXPECT_EQ(api.graph_launch(exec, stream), CUDA_SUCCESS);
  const CUgraph graph = kernels({3, 4});
  const auto info = update(exec, graph, CUDA_SUCCESS);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  EXPECT_EQ(info.errorNode, nullptr);
  EXPECT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(api.graph_launch(exec, stream), CUDA_SUCCESS);
  ready.driver.run_until_idle();
  EXPECT_EQ(order, (Marks{1, 2, 3, 4}));
}

TEST_F(SimulatedGraphUpdates, AnUpdatedGraphStillRunsBehindItsEarlierLaunch) {
  const CUgraphExec exec = instantiate(kernels({1}));
  note(stream, 0, 5ms);
  EXPECT_EQ(api.graph_launch(exec, stream), CUDA_SUCCESS);
  update(exec, kernels({2}), CUDA_SUCCESS);
  EXPECT_EQ(api.graph_launch(exec, other), CUDA_SUCCESS);
  ready.driver.run_until_idle(other);
  EXPECT_EQ(order, (Marks{0, 1, 2}));
}

TEST_F(SimulatedGraphUpdates, AnotherNumberOfNodesChangesTheTopology) {
  expect_refused(kernels({1}), kernels({1, 2}), CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr);
  expect_refused(kernels({1, 2}), kernels({1}), CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr);
}

TEST_F(SimulatedGraphUpdates, MoreExitsChangeTheTopologyAndTheFirstOneTooManyIsNamed) {
  // A chain of two has one exit; two kernels side by side, joined by nothing after, have two.
  const CUgraph after = fan(2);
  expect_refused(kernels({1, 2}), after, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nodes(after)[1]);
}

TEST_F(SimulatedGraphUpdates, FewerExitsChangeTheTopology) {
  const CUgraph after = kernels({1, 2});
  expect_refused(fan(2), after, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nodes(after)[1]);
}

TEST_F(SimulatedGraphUpdates, AnotherNumberOfDependenciesIsNamedWithItsNode) {
  const auto build = [&](bool joins_both) {
    const CUstream third = ready.driver.create_stream();
    return capture([&](CUstream on) {
      depend(other, on);
      depend(third, on);
      note(on, 1);
      note(other, 2);
      if (joins_both) note(third, 3);
      depend(on, other);
      if (joins_both) depend(on, third);
      note(on, 4);
      if (!joins_both) note(on, 5);
    });
  };
  const CUgraph after = build(false);
  // The exit's one dependency has become three.
  expect_refused(build(true), after, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nodes(after).back());
}

// "... a dependency does not match when the nodes are already paired based on other edges".
TEST_F(SimulatedGraphUpdates, ADependencyThatIsPairedOtherwiseIsNamedWithBothEnds) {
  // Two exits, of which the second depends on the nodes of the first in another order.
  const auto build = [&](bool swaps) {
    const CUstream a = ready.driver.create_stream();
    const CUstream b = ready.driver.create_stream();
    const CUstream second = ready.driver.create_stream();
    return capture([&](CUstream on) {
      depend(a, on);
      depend(b, on);
      depend(second, on);
      note(a, 1);
      note(b, 2);
      depend(on, a);
      depend(on, b);
      note(on, 3);
      depend(second, swaps ? b : a);
      depend(second, swaps ? a : b);
      note(second, 4);
      depend(on, second);
    });
  };
  EXPECT_EQ(update(instantiate(build(true)), build(true), CUDA_SUCCESS).result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  const CUgraph after = build(true);
  const std::vector<CUgraphNode> all = nodes(after);
  const CUgraphExec exec = instantiate(build(false));
  const auto info = update(exec, after, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  EXPECT_TRUE(info.errorNode == all[2] || info.errorNode == all[3]);
  EXPECT_TRUE(info.errorFromNode == all[0] || info.errorFromNode == all[1]);
}

TEST_F(SimulatedGraphUpdates, AnotherTypeIsNamedWithItsNode) {
  const CUdeviceptr memory = ready.allocate(KiB);
  const CUgraph after = fill(memory);
  expect_refused(kernels({1}), after, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, nodes(after)[0]);
}

TEST_F(SimulatedGraphUpdates, CopiesAndFillsMayMoveWithinTheirDevice) {
  const CUdeviceptr memory = ready.allocate(KiB);
  std::vector<char> host(KiB);
  const auto at = [&](std::size_t offset) { return reinterpret_cast<CUdeviceptr>(host.data() + offset); };
  update(instantiate(copy(memory, at(0))), copy(memory + 64, at(64)), CUDA_SUCCESS);
  update(instantiate(fill(memory)), fill(memory + 64, 128), CUDA_SUCCESS);
}

TEST_F(SimulatedGraphUpdates, CopiesAndFillsMayNotMoveToAnotherDeviceNorBetweenDeviceAndHost) {
  constexpr auto changed = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  const CUdeviceptr near = allocate_on(0);
  const CUdeviceptr far = allocate_on(1);
  std::vector<char> bytes(KiB);
  const auto host = reinterpret_cast<CUdeviceptr>(bytes.data());
  for (const CUgraph after : {copy(near, near + 64), copy(far, host), copy(host, near)}) {
    expect_refused(copy(near, host), after, changed, nodes(after)[0]);
  }
}

// "The owning context of the function cannot change."
TEST_F(SimulatedGraphUpdates, AKernelMayNotMoveToAnotherContext) {
  const CUstream far = ready.driver.create_stream(1);
  begin(far);
  note(far, 1);
  const CUgraph after = end(far);
  expect_refused(kernels({1}), after, CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, nodes(after)[0]);
}

TEST_F(SimulatedGraphUpdates, APriorityMayOnlyChangeWhereItIsNotUsed) {
  const CUstream high = ready.driver.create_stream(0, -3);
  begin(high);
  note(high, 1);
  const CUgraph after = end(high);
  expect_refused(kernels({1}), after, CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED, nodes(after)[0], nullptr,
                 CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
  update(instantiate(kernels({1})), after, CUDA_SUCCESS);
}

TEST_F(SimulatedGraphUpdates, EmbeddedGraphsAreUpdatedByTheSameRules) {
  const auto embed = [&](const Marks& marks) {
    const CUgraphExec inner = instantiate(kernels(marks));
    return capture([&](CUstream on) { EXPECT_EQ(api.graph_launch(inner, on), CUDA_SUCCESS); });
  };
  const CUgraphExec exec = instantiate(embed({1}));
  update(exec, embed({2}), CUDA_SUCCESS);
  const auto info = update(exec, embed({3, 4}), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  EXPECT_EQ(api.graph_launch(exec, stream), CUDA_SUCCESS);
  ready.driver.run_until_idle();
  EXPECT_EQ(order, Marks{2});
}

TEST_F(SimulatedGraphUpdates, HandlesThatMeanNothingAreAnError) {
  const CUgraph graph = kernels({1});
  const CUgraphExec exec = instantiate(graph);
  EXPECT_EQ(api.graph_exec_update(exec, graph, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(update(nullptr, graph, CUDA_ERROR_INVALID_VALUE).result, CU_GRAPH_EXEC_UPDATE_ERROR);
  EXPECT_EQ(update(exec, nullptr, CUDA_ERROR_INVALID_VALUE).result, CU_GRAPH_EXEC_UPDATE_ERROR);
}

}  // namespace
}  // namespace cistern
