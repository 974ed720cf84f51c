// With which priority the nodes of a graph run: the launch stream's, or their own.
#include <gtest/gtest.h>

#include "tests/simulated/capture_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::CaptureTest;

constexpr auto kOwnPriorities = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

class GraphPriorityTest : public CaptureTest {
 protected:
  CUstream stream_of(int priority) {
    CUstream made = nullptr;
    EXPECT_EQ(api.stream_create_with_priority(&made, CU_STREAM_NON_BLOCKING, priority), CUDA_SUCCESS);
    return made;
  }
  // Two branches: 1 of the origin's priority, the lowest, and 2 of a higher one.
  template <class Branch>
  CUgraph two_branches(Branch second) {
    return capture([&](CUstream origin) {
      depend(high, origin);
      note(origin, 1, 1ms);
      second(high);
      depend(origin, high);
    });
  }
  void run(CUgraphExec exec, CUstream on) {
    EXPECT_EQ(api.graph_launch(exec, on), CUDA_SUCCESS);
    while (ready.driver.step()) {
    }
  }

  const CUstream high = stream_of(-2);
  const CUstream middle = stream_of(-1);
};

TEST_F(GraphPriorityTest, NodesRunWithThePriorityOfTheLaunchStream) {
  run(instantiate(two_branches([&](CUstream on) { note(on, 2, 1ms); })), stream);
  EXPECT_EQ(order, (std::vector<int>{1, 2})) << "in the order of capture";
}

TEST_F(GraphPriorityTest, WithTheFlagKernelsRunWithTheirOwn) {
  run(instantiate(two_branches([&](CUstream on) { note(on, 2, 1ms); }), kOwnPriorities), stream);
  EXPECT_EQ(order, (std::vector<int>{2, 1}));
}

TEST_F(GraphPriorityTest, TheyCountBesideOtherStreamsToo) {
  const CUgraphExec exec = instantiate(two_branches([&](CUstream on) { note(on, 2, 1ms); }), kOwnPriorities);
  note(middle, 3, 1ms);
  run(exec, stream);
  EXPECT_EQ(order, (std::vector<int>{2, 3, 1}));
}

TEST_F(GraphPriorityTest, WithoutTheFlagTheLaunchStreamIsAllThatCounts) {
  const CUgraphExec exec = instantiate(two_branches([&](CUstream on) { note(on, 2, 1ms); }));
  note(middle, 3, 1ms);
  run(exec, high);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST_F(GraphPriorityTest, OnlyKernelsHaveOne) {
  const auto host_function = [this](CUstream on) {
    EXPECT_EQ(api.launch_host_func(
                  on, [](void* self) { static_cast<std::vector<int>*>(self)->push_back(2); }, &order),
              CUDA_SUCCESS);
  };
  run(instantiate(two_branches(host_function), kOwnPriorities), stream);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(GraphPriorityTest, TheFlagReachesEmbeddedGraphs) {
  const CUgraphExec inner = instantiate(two_branches([&](CUstream on) { note(on, 2, 1ms); }));
  const CUgraph outer = capture([&](CUstream on) { EXPECT_EQ(api.graph_launch(inner, on), CUDA_SUCCESS); });
  run(instantiate(outer, kOwnPriorities), stream);
  EXPECT_EQ(order, (std::vector<int>{2, 1}));
}

}  // namespace
}  // namespace cistern
