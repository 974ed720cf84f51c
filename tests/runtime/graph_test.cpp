// Captured work: begun, ended, launched, updated, and every misuse of it.

#include <cistern/error.h>
#include <cistern/event.h>
#include <cistern/graph.h>
#include <cistern/memory.h>
#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/process_driver.h"
#include "runtime/stream_access.h"
#include "tests/runtime/device_memory.h"
#include "tests/runtime/process_device.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

int code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const DriverError& error) {
    return error.code();
  }
  return CUDA_SUCCESS;
}

class Graphs : public ProcessDevice {
 protected:
  // A graph of kernels, one behind the other, that each add to `order`.
  static Graph chain(const Stream& stream, std::vector<int>& order, int kernels) {
    CaptureGuard capture(stream);
    for (int i = 1; i <= kernels; ++i) note(stream, order, i);
    return capture.end();
  }
  static void note(const Stream& stream, std::vector<int>& order, int number) {
    simulated::launch(stream, {}, {}, std::chrono::milliseconds(1), [&order, number] { order.push_back(number); });
  }
};

TEST_F(Graphs, CapturedWorkRunsWhenTheGraphIsLaunchedAndAsOften) {
  const Stream stream = Stream::create();
  std::vector<int> order;
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::none);
  stream.begin_capture();
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::active);
  note(stream, order, 1);
  note(stream, order, 2);
  const Graph graph = stream.end_capture();
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::none);
  stream.synchronize();
  EXPECT_TRUE(order.empty());

  graph.launch(stream);
  stream.synchronize();
  EXPECT_THAT(order, ElementsAre(1, 2));
  const Stream other = Stream::create();
  {
    const StreamGuard guard(other);
    graph.launch();
  }
  EXPECT_FALSE(other.query());
  EXPECT_TRUE(stream.query());
  other.synchronize();
  EXPECT_THAT(order, ElementsAre(1, 2, 1, 2));
}

TEST_F(Graphs, NodesEdgesAndKindsAreThoseOfTheWork) {
  const DeviceMemory memory(4096);
  const Stream stream = Stream::create();
  const Stream fork = Stream::create();
  std::vector<int> order;
  CaptureGuard capture(stream);
  fill_async(memory.get(), 1, 16, stream);
  fork.wait_stream(stream);
  EXPECT_EQ(fork.is_capturing(), CaptureStatus::active);
  note(fork, order, 1);
  copy_async(memory.at(1024), memory.get(), 16, stream);
  stream.launch_host_func([] {});
  stream.wait_stream(fork);
  note(stream, order, 2);
  const Graph graph = capture.end();
  EXPECT_EQ(fork.is_capturing(), CaptureStatus::none);
  EXPECT_EQ(graph.node_count(), 5U);
  EXPECT_EQ(graph.edge_count(), 5U);
  EXPECT_THAT(graph.node_kinds(), UnorderedElementsAre(GraphNodeKind::fill, GraphNodeKind::kernel, GraphNodeKind::copy,
                                                       GraphNodeKind::host_function, GraphNodeKind::kernel));
  EXPECT_THAT(graph.debug_text(), HasSubstr("digraph"));
  EXPECT_STREQ(to_string(GraphNodeKind::host_function), "host function");
}

TEST_F(Graphs, EmptyCaptureIsAGraphWithoutNodes) {
  const Stream stream = Stream::create();
  stream.begin_capture();
  const Graph graph = stream.end_capture();
  EXPECT_EQ(graph.node_count(), 0U);
  EXPECT_TRUE(graph.node_kinds().empty());
  graph.launch(stream);
  stream.synchronize();
}

TEST_F(Graphs, AreInstantiatedOnceByWhoeverComesFirst) {
  const Stream stream = Stream::create();
  std::vector<int> order;
  const Graph graph = chain(stream, order, 1);
  EXPECT_FALSE(graph.is_instantiated());
  EXPECT_EQ(graph.native_executable(), nullptr);
  const auto instantiated = driver().calls("cuGraphInstantiateWithFlags");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { graph.launch(stream); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(driver().calls("cuGraphInstantiateWithFlags"), instantiated + 1);
  EXPECT_TRUE(graph.is_instantiated());
  EXPECT_NE(graph.native_executable(), nullptr);
  stream.synchronize();
  EXPECT_EQ(order.size(), 4U);
  graph.instantiate();
  graph.upload(stream);
  EXPECT_EQ(driver().calls("cuGraphInstantiateWithFlags"), instantiated + 1);
}

TEST_F(Graphs, CopiesShareOneGraphThatIsDestroyedWithTheLast) {
  const Stream stream = Stream::create();
  std::vector<int> order;
  const auto graphs = driver().calls("cuGraphDestroy");
  const auto execs = driver().calls("cuGraphExecDestroy");
  {
    Graph copy;
    EXPECT_FALSE(copy.valid());
    {
      const Graph graph = chain(stream, order, 1);
      copy = graph;
      EXPECT_EQ(copy, graph);
      EXPECT_EQ(copy.device(), Device(0));
    }
    EXPECT_EQ(driver().calls("cuGraphDestroy"), graphs);
    copy.launch(stream);
  }
  EXPECT_EQ(driver().calls("cuGraphDestroy"), graphs + 1);
  EXPECT_EQ(driver().calls("cuGraphExecDestroy"), execs + 1);
  stream.synchronize();
  EXPECT_THAT(order, ElementsAre(1));
}

TEST_F(Graphs, OutliveTheStreamsThatWereCaptured) {
  std::vector<int> order;
  std::optional<Graph> graph;
  {
    const Stream stream = Stream::create({.device = 1});
    graph = chain(stream, order, 2);
  }
  EXPECT_EQ(graph->device(), Device(1));
  graph->launch(default_stream(1));
  synchronize(1);
  EXPECT_THAT(order, ElementsAre(1, 2));
}

TEST_F(Graphs, HostFunctionOfAGraphRunsAtEachLaunchAndEndsWithIt) {
  const Stream stream = Stream::create();
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = held;
  int data = 0;
  {
    CaptureGuard capture(stream);
    stream.launch_host_func([held] { ++*held; });
    stream.launch_host_func([](void* user_data) { ++*static_cast<int*>(user_data); }, &data);
    const Graph graph = capture.end();
    held.reset();
    EXPECT_FALSE(watch.expired());
    for (int i = 0; i < 3; ++i) graph.launch(stream);
    stream.synchronize();
    EXPECT_EQ(*watch.lock(), 3);
    EXPECT_EQ(data, 3);
    graph.launch(stream);
  }
  // Still pending: the launch keeps what it runs.
  EXPECT_FALSE(watch.expired());
  stream.synchronize();
  EXPECT_EQ(data, 4);
  EXPECT_TRUE(watch.expired());
}

TEST_F(Graphs, HostFunctionOfADroppedCaptureEndsWithIt) {
  const Stream stream = Stream::create();
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = held;
  {
    const CaptureGuard capture(stream);
    stream.launch_host_func([held = std::move(held)] {});
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

TEST_F(Graphs, CallbackInCaptureIsRefusedAndTheCaptureGoesOn) {
  const Stream stream = Stream::create();
  CaptureGuard capture(stream);
  EXPECT_THROW(stream.add_callback([](const Stream&, int, void*) {}), NotSupported);
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::active);
  EXPECT_EQ(capture.end().node_count(), 0U);
}

TEST_F(Graphs, UpdateTakesOverParametersAndLaterLaunchesUseThem) {
  const DeviceMemory memory(4096);
  const Stream stream = Stream::create();
  const auto fill = [&](unsigned char value) {
    CaptureGuard capture(stream);
    fill_async(memory.get(), value, 16, stream);
    return capture.end();
  };
  const Graph graph = fill(1);
  graph.launch(stream);
  const GraphUpdateResult updated = graph.update(fill(2));
  EXPECT_TRUE(updated);
  EXPECT_TRUE(updated.text.empty());
  EXPECT_TRUE(graph.update(graph));  // from itself, without a deadlock
  EXPECT_TRUE(graph.update(fill(3)));
  graph.launch(stream);
  stream.synchronize();
  EXPECT_EQ(*static_cast<unsigned char*>(memory.get()), 3);
}

TEST_F(Graphs, RefusedUpdateNamesItsReasonAndChangesNothing) {
  const Stream stream = Stream::create();
  std::vector<int> order;
  const Graph graph = chain(stream, order, 2);
  const GraphUpdateResult longer = graph.update(chain(stream, order, 3));
  EXPECT_FALSE(longer);
  EXPECT_EQ(longer.refusal, GraphUpdateRefusal::topology_changed);
  EXPECT_THAT(longer.text, HasSubstr("the topology changed"));
  CaptureGuard capture(stream);
  note(stream, order, 1);
  stream.launch_host_func([] {});
  const GraphUpdateResult other = graph.update(capture.end());
  EXPECT_EQ(other.refusal, GraphUpdateRefusal::node_type_changed);
  EXPECT_THAT(other.text, HasSubstr("the type of a node changed"));
  graph.launch(stream);
  stream.synchronize();
  EXPECT_THAT(order, ElementsAre(1, 2));
}

TEST_F(Graphs, UpdateThatFailsOtherwiseIsADriverError) {
  const Stream stream = Stream::create();
  std::vector<int> order;
  const Graph graph = chain(stream, order, 1);
  driver().fail_call("cuGraphExecUpdate", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(code_of([&] { static_cast<void>(graph.update(chain(stream, order, 1))); }), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(Graphs, NoneIsRefusedByName) {
  const Graph none;
  const Stream stream = Stream::create();
  std::vector<int> order;
  const Graph graph = chain(stream, order, 1);
  const std::vector<std::function<void()>> uses = {[&] { none.launch(); },
                                                   [&] { none.launch(stream); },
                                                   [&] { none.upload(stream); },
                                                   [&] { none.instantiate(); },
                                                   [&] { static_cast<void>(none.is_instantiated()); },
                                                   [&] { static_cast<void>(none.node_count()); },
                                                   [&] { static_cast<void>(none.edge_count()); },
                                                   [&] { static_cast<void>(none.node_kinds()); },
                                                   [&] { static_cast<void>(none.debug_text()); },
                                                   [&] { static_cast<void>(none.update(graph)); },
                                                   [&] { static_cast<void>(graph.update(none)); }};
  for (const auto& use : uses) {
    EXPECT_THROW(use(), InvalidArgument);
  }
  EXPECT_EQ(none.native_handle(), nullptr);
  EXPECT_EQ(none.native_executable(), nullptr);
  EXPECT_TRUE(none.device().is_current());
  EXPECT_THROW(static_cast<void>(Graph::adopt(nullptr)), InvalidArgument);
}

TEST_F(Graphs, OneThatWasMovedFromIsNone) {
  const Stream stream = Stream::create();
  std::vector<int> order;
  Graph graph = chain(stream, order, 1);
  const Graph taken = std::move(graph);
  EXPECT_FALSE(graph.valid());  // NOLINT(bugprone-use-after-move): what is left is stated
  EXPECT_THROW(graph.launch(stream), InvalidArgument);
  taken.launch(stream);
  stream.synchronize();
  EXPECT_EQ(order, std::vector<int>{1});
}

TEST_F(Graphs, OfTheProcessDoNotRunOnAnotherDriversStream) {
  SimulatedDriver other;
  const Stream foreign = StreamAccess::wrap(other.api(), {}, 0);
  std::vector<int> order;
  const Graph graph = chain(Stream::create(), order, 1);
  EXPECT_THROW(graph.launch(foreign), InvalidArgument);
  EXPECT_THROW(graph.upload(foreign), InvalidArgument);
  EXPECT_FALSE(graph.is_instantiated());
}

TEST_F(Graphs, BeginAndEndArePaired) {
  const Stream stream = Stream::create();
  EXPECT_EQ(code_of([&] { static_cast<void>(stream.end_capture()); }), CUDA_ERROR_ILLEGAL_STATE);
  CaptureGuard capture(stream);
  EXPECT_EQ(code_of([&] { stream.begin_capture(); }), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::active);
  static_cast<void>(capture.end());
  EXPECT_THROW(static_cast<void>(capture.end()), InvalidArgument);
}

TEST_F(Graphs, LegacyStreamCannotBeCaptured) {
  EXPECT_EQ(code_of([] { Stream::null().begin_capture(); }), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const Stream blocking = Stream::from_flags({});
  const CaptureGuard capture(blocking);
  EXPECT_EQ(code_of([] { static_cast<void>(Stream::null().is_capturing()); }), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(blocking.is_capturing(), CaptureStatus::active);
}

TEST_F(Graphs, CaptureThatIsNotJoinedFailsAndIsOver) {
  const Stream stream = Stream::create();
  const Stream fork = Stream::create();
  std::vector<int> order;
  stream.begin_capture();
  fork.wait_stream(stream);
  note(fork, order, 1);
  EXPECT_EQ(code_of([&] { static_cast<void>(stream.end_capture()); }), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::none);
  EXPECT_EQ(fork.is_capturing(), CaptureStatus::none);
}

TEST_F(Graphs, CallThatWaitsInvalidatesTheCapture) {
  const Stream stream = Stream::create();
  stream.begin_capture();
  EXPECT_NE(code_of([&] { stream.synchronize(); }), CUDA_SUCCESS);
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::invalidated);
  EXPECT_EQ(code_of([&] { static_cast<void>(stream.end_capture()); }), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::none);
}

TEST_F(Graphs, ModeSaysWhoMayEndACapture) {
  const Stream stream = Stream::create();
  stream.begin_capture(CaptureMode::relaxed);
  std::thread([&] { EXPECT_EQ(stream.end_capture().node_count(), 0U); }).join();
  for (const CaptureMode mode : {CaptureMode::global, CaptureMode::per_thread}) {
    CaptureGuard capture(stream, mode);
    std::thread([&] {
      EXPECT_EQ(code_of([&] { static_cast<void>(stream.end_capture()); }), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }).join();
  }
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::none);
  EXPECT_THROW(stream.begin_capture(static_cast<CaptureMode>(7)), InvalidArgument);
}

TEST_F(Graphs, ModeOfAThreadIsChangedForAScope) {
  const Stream stream = Stream::create();
  const CaptureGuard capture(stream, CaptureMode::global);
  EXPECT_NO_THROW({
    const CaptureModeGuard relaxed(CaptureMode::relaxed);
    const DeviceMemory memory(4096);
  });
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::active);
  const DeviceScope scope(nullptr, 0);
  CUdeviceptr address = 0;
  EXPECT_NE(scope.api().mem_alloc(&address, 4096), CUDA_SUCCESS);
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::invalidated);
}

TEST_F(Graphs, GuardEndsACaptureThatAnExceptionLeaves) {
  const Stream stream = Stream::create();
  std::vector<int> order;
  const auto graphs = driver().calls("cuGraphDestroy");
  try {
    const CaptureGuard capture(stream);
    note(stream, order, 1);
    throw NotReady("on purpose");
  } catch (const NotReady&) {
  }
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::none);
  EXPECT_EQ(driver().calls("cuGraphDestroy"), graphs + 1);
  note(stream, order, 2);
  stream.synchronize();
  EXPECT_THAT(order, ElementsAre(2));
}

TEST_F(Graphs, GuardDropsACaptureThatCouldNotBeEnded) {
  const Stream stream = Stream::create();
  {
    CaptureGuard capture(stream, CaptureMode::per_thread);
    std::thread([&] { EXPECT_THROW(static_cast<void>(capture.end()), DriverError); }).join();
    EXPECT_EQ(stream.is_capturing(), CaptureStatus::invalidated);
  }
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::none);
}

TEST_F(Graphs, ExternalEventIsRecordedByEachLaunchAndIsPlainOutside) {
  const Stream stream = Stream::create();
  const Stream waiting = Stream::create();
  Event event(EventOptions{.external = true});
  event.record(stream);
  waiting.wait_event(event);
  std::vector<int> order;
  CaptureGuard capture(stream);
  note(stream, order, 1);
  event.record(stream);
  const Graph graph = capture.end();
  EXPECT_THAT(graph.node_kinds(), ElementsAre(GraphNodeKind::kernel, GraphNodeKind::event_record));
  EXPECT_TRUE(event.query());
  graph.launch(stream);
  EXPECT_FALSE(event.query());
  waiting.wait_event(event);
  EXPECT_FALSE(waiting.query());
  event.synchronize();
  EXPECT_THAT(order, ElementsAre(1));
  EXPECT_TRUE(waiting.query());
}

TEST_F(Graphs, WaitForAnExternalEventIsANode) {
  const Stream stream = Stream::create();
  const Stream busy = Stream::create();
  Event event(EventOptions{.external = true});
  event.record(busy);
  CaptureGuard capture(stream);
  stream.wait_event(event);
  const Graph graph = capture.end();
  EXPECT_THAT(graph.node_kinds(), ElementsAre(GraphNodeKind::event_wait));
  occupy(busy);
  event.record(busy);
  graph.launch(stream);
  EXPECT_FALSE(stream.query());
  busy.synchronize();
  EXPECT_TRUE(stream.query());
}

TEST_F(Graphs, EndWithoutHostMemoryAndFailingCallsAreReportedByName) {
  const Stream stream = Stream::create();
  std::vector<int> order;
  const Graph graph = chain(stream, order, 1);
  const auto expect_reported = [&](const char* entry, const std::function<void()>& action) {
    driver().fail_call(entry, 1, CUDA_ERROR_UNKNOWN);
    try {
      action();
      ADD_FAILURE() << entry << " failed unnoticed";
    } catch (const DriverError& error) {
      EXPECT_EQ(error.call(), entry);
    }
  };
  expect_reported("cuGraphInstantiateWithFlags", [&] { graph.instantiate(); });
  expect_reported("cuGraphLaunch", [&] { graph.launch(stream); });
  expect_reported("cuGraphUpload", [&] { graph.upload(stream); });
  expect_reported("cuGraphGetNodes", [&] { static_cast<void>(graph.node_count()); });
  expect_reported("cuGraphGetEdges", [&] { static_cast<void>(graph.edge_count()); });
  expect_reported("cuGraphNodeGetType", [&] { static_cast<void>(graph.node_kinds()); });
  expect_reported("cuGraphDebugDotPrint", [&] { static_cast<void>(graph.debug_text()); });
  expect_reported("cuStreamBeginCapture", [&] { stream.begin_capture(); });
  expect_reported("cuStreamIsCapturing", [&] { static_cast<void>(stream.is_capturing()); });
  expect_reported("cuStreamEndCapture", [&] { static_cast<void>(stream.end_capture()); });
  expect_reported("cuThreadExchangeStreamCaptureMode", [] { const CaptureModeGuard guard(CaptureMode::relaxed); });
}

}  // namespace
}  // namespace cistern
