// Executor::queue_graph: what the launch of a graph asks of the executor.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "runtime/simulated/driver_state.h"
#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;
using simulated::GraphOperation;
using simulated::StreamQueue;
using simulated::Target;

class GraphLaunch : public ::testing::Test {
 protected:
  StreamQueue& queue(StreamHandle handle) { return *state.streams.find(handle, 0); }
  GraphOperation node(int mark, std::vector<std::size_t> after = {}, std::chrono::nanoseconds duration = 1ms) {
    const auto note = [this, mark](CUresult) {
      order.push_back(mark);
      return CUDA_SUCCESS;
    };
    return {.work = {.duration = duration, .function = note}, .after = std::move(after)};
  }
  Target launch(StreamHandle on, std::vector<GraphOperation> nodes, const simulated::Targets& behind = {}) {
    const std::lock_guard lock(state.mutex);
    return state.executor.queue_graph(queue(on), std::move(nodes), behind);
  }

  ReadyDriver ready;
  simulated::DriverState& state = *simulated::find_driver_state(ready.api);
  std::vector<int> order;
  const StreamHandle stream = ready.driver.create_stream();
};

TEST_F(GraphLaunch, NodesFollowTheirEdgesAndTheStreamWaitsForAll) {
  ready.note(stream, order, 0);
  launch(stream, {node(1), node(2, {0}), node(3, {0}), node(4, {1, 2})});
  ready.note(stream, order, 5);
  EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

TEST_F(GraphLaunch, BranchesOverlapInVirtualTime) {
  launch(stream, {node(1, {}, 1ms), node(2, {0}, 5ms), node(3, {0}, 3ms), node(4, {1, 2}, 1ms)});
  EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.virtual_time(), 7ms);
}

TEST_F(GraphLaunch, AStepOfTheStreamRunsOneNode) {
  launch(stream, {node(1), node(2), node(3, {0, 1})});
  EXPECT_TRUE(ready.driver.step(stream));
  EXPECT_EQ(order, std::vector<int>{1});
  EXPECT_TRUE(ready.driver.step(stream));
  EXPECT_EQ(ready.api.stream_query(stream), CUDA_ERROR_NOT_READY);
  EXPECT_TRUE(ready.driver.step(stream));
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(ready.api.stream_query(stream), CUDA_SUCCESS);
  EXPECT_FALSE(ready.driver.step(stream));
}

TEST_F(GraphLaunch, AnEmptyGraphIsDoneWithWhatPrecedesIt) {
  ready.driver.occupy(stream, 1ms);
  launch(stream, {});
  EXPECT_EQ(ready.api.stream_query(stream), CUDA_ERROR_NOT_READY);
  EXPECT_TRUE(ready.driver.step(stream));
  EXPECT_EQ(ready.api.stream_query(stream), CUDA_SUCCESS);
  launch(stream, {});
  EXPECT_EQ(ready.api.stream_query(stream), CUDA_SUCCESS);
}

TEST_F(GraphLaunch, ALaterLaunchWaitsForAnEarlierOneOnAnotherStream) {
  const StreamHandle other = ready.driver.create_stream();
  const Target first = launch(stream, {node(1), node(2, {0})});
  launch(other, {node(3)}, {first});
  EXPECT_EQ(ready.api.stream_synchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  launch(other, {node(4)}, {first});  // done long ago
  EXPECT_EQ(ready.api.stream_synchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(order.back(), 4);
}

TEST_F(GraphLaunch, NodesRecordAndAwaitEvents) {
  const StreamHandle producer = ready.driver.create_stream();
  const StreamHandle consumer = ready.driver.create_stream();
  const CUevent before = ready.create_event();
  const CUevent within = ready.create_event();
  ready.note(producer, order, 1);
  EXPECT_EQ(ready.api.event_record(before, producer), CUDA_SUCCESS);
  simulated::Event* awaited = state.events.find(reinterpret_cast<std::uint64_t>(before));
  simulated::Event* recorded = state.events.find(reinterpret_cast<std::uint64_t>(within));
  launch(stream, {{.waits_for = awaited}, node(2, {0}), {.after = {1}, .records = recorded}, node(3, {1})});
  EXPECT_EQ(ready.api.event_query(within), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(ready.api.stream_wait_event(consumer, within, 0), CUDA_SUCCESS);
  ready.note(consumer, order, 4);
  EXPECT_EQ(ready.api.stream_synchronize(consumer), CUDA_SUCCESS);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(ready.api.event_query(within), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_query(stream), CUDA_ERROR_NOT_READY);
  ready.driver.run_until_idle();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 4, 3}));
}

TEST_F(GraphLaunch, OnABlockingStreamItComesBeforeTheLegacyStreamsLaterWork) {
  launch(ready.create_blocking_stream(), {node(1), node(2)});
  ready.note(nullptr, order, 3);
  EXPECT_EQ(ready.api.stream_synchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

}  // namespace
}  // namespace cistern
