// Several host threads on a free-running driver capture streams, launch graphs, record events and
// wait for them, and destroy all of it while it runs. Clean under ThreadSanitizer: what the work
// touches is guarded by streams, events and graphs alone.
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/property.h"
#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

constexpr int kThreads = 4;

class GraphStress : public ::testing::Test {
 protected:
  template <class Body>
  void in_threads(Body body) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([this, body, thread] {
        ready.use(0);
        body(thread);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  // What `work` queues on `stream`, as something to launch.
  template <class Work>
  CUgraphExec capture(CUstream stream, Work work) {
    EXPECT_EQ(api.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    work();
    CUgraph graph = nullptr;
    EXPECT_EQ(api.stream_end_capture(stream, &graph), CUDA_SUCCESS);
    CUgraphExec exec = nullptr;
    EXPECT_EQ(api.graph_instantiate(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
    return exec;
  }
  // All that is queued on `to` from now on comes after what is queued on `from`, also in a capture.
  void order(CUstream from, CUstream to) {
    const CUevent event = ready.create_event(CU_EVENT_DISABLE_TIMING);
    EXPECT_EQ(api.event_record(event, from), CUDA_SUCCESS);
    EXPECT_EQ(api.stream_wait_event(to, event, 0), CUDA_SUCCESS);
    EXPECT_EQ(api.event_destroy(event), CUDA_SUCCESS);
  }
  CUstream create_stream(unsigned flags) {
    CUstream stream = nullptr;
    EXPECT_EQ(api.stream_create_with_priority(&stream, flags, 0), CUDA_SUCCESS);
    return stream;
  }
  void add(CUstream stream, int& number) {
    ready.driver.launch(stream, {}, {}, 1us, [&number] { ++number; });
  }

  ReadyDriver ready{{.capacity_bytes = 256 * MiB, .drive = Drive::free}};
  const DriverApi& api = ready.api;
};

TEST_F(GraphStress, GraphsThatForkAndJoinRunInOrderWhileTheirHandlesAreDestroyed) {
  std::array<int, kThreads> numbers{};
  std::atomic<int> wrong{0};
  const int rounds = static_cast<int>(scaled(300));
  constexpr int kLaunches = 3;
  in_threads([&, rounds](int thread) {
    int& number = numbers[static_cast<std::size_t>(thread)];
    const CUstream kept = create_stream(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < rounds; ++round) {
      const CUstream stream = create_stream(round % 2 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
      const CUstream side = create_stream(CU_STREAM_NON_BLOCKING);
      order(kept, stream);
      const CUgraphExec exec = capture(stream, [&] {
        add(stream, number);
        order(stream, side);
        add(side, number);
        order(side, stream);
        add(stream, number);
      });
      for (int launch = 0; launch < kLaunches; ++launch) EXPECT_EQ(api.graph_launch(exec, stream), CUDA_SUCCESS);
      const int expected = (round + 1) * kLaunches * 3;
      ready.driver.launch(stream, {}, {}, 1us, [&number, &wrong, expected] {
        if (number != expected) ++wrong;
      });
      order(stream, kept);
      EXPECT_EQ(api.graph_exec_destroy(exec), CUDA_SUCCESS);
      EXPECT_EQ(api.stream_destroy(side), CUDA_SUCCESS);
      EXPECT_EQ(api.stream_destroy(stream), CUDA_SUCCESS);
    }
    EXPECT_EQ(api.stream_synchronize(kept), CUDA_SUCCESS);
    EXPECT_EQ(number, rounds * kLaunches * 3) << "thread " << thread;
  });
  EXPECT_EQ(wrong, 0);
}

TEST_F(GraphStress, LaunchesOfOneGraphComeOneAfterTheOtherWhoeverLaunchesIt) {
  int number = 0;
  const CUstream origin = create_stream(CU_STREAM_NON_BLOCKING);
  const CUgraphExec exec = capture(origin, [&] {
    add(origin, number);
    add(origin, number);
  });
  const int rounds = static_cast<int>(scaled(1000));
  in_threads([&, rounds](int thread) {
    const CUstream stream = create_stream(thread % 2 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < rounds; ++round) {
      EXPECT_EQ(api.graph_launch(exec, stream), CUDA_SUCCESS);
      if (round % 16 == thread) {
        EXPECT_EQ(api.stream_synchronize(stream), CUDA_SUCCESS);
      }
    }
    EXPECT_EQ(api.stream_destroy(stream), CUDA_SUCCESS);
  });
  EXPECT_EQ(api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(number, 2 * rounds * kThreads);
  EXPECT_EQ(api.graph_exec_destroy(exec), CUDA_SUCCESS);
}

// A ring: each thread's graph waits for its neighbour's event and records its own. That the order
// is whatever the threads make of it is the point; nothing may hang or be lost.
TEST_F(GraphStress, GraphsRecordAndAwaitEventsThatOtherThreadsUse) {
  std::array<CUevent, kThreads> events{};
  for (CUevent& event : events) event = ready.create_event(CU_EVENT_DISABLE_TIMING);
  std::array<int, kThreads> numbers{};
  const int rounds = static_cast<int>(scaled(500));
  in_threads([&, rounds](int thread) {
    const auto own = static_cast<std::size_t>(thread);
    const CUevent theirs = events[(own + 1) % kThreads];
    const CUstream stream = create_stream(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < rounds; ++round) {
      const CUgraphExec exec = capture(stream, [&] {
        EXPECT_EQ(api.stream_wait_event(stream, theirs, CU_EVENT_WAIT_EXTERNAL), CUDA_SUCCESS);
        add(stream, numbers[own]);
        EXPECT_EQ(api.event_record_with_flags(events[own], stream, CU_EVENT_RECORD_EXTERNAL), CUDA_SUCCESS);
      });
      EXPECT_EQ(api.graph_launch(exec, stream), CUDA_SUCCESS);
      EXPECT_EQ(api.graph_exec_destroy(exec), CUDA_SUCCESS);
      EXPECT_NE(api.event_query(theirs), CUDA_ERROR_INVALID_HANDLE);
      if (round % 8 == 0) {
        EXPECT_EQ(api.event_synchronize(theirs), CUDA_SUCCESS);
      }
    }
    EXPECT_EQ(api.stream_synchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(api.event_query(events[own]), CUDA_SUCCESS);
  });
  for (const int number : numbers) EXPECT_EQ(number, rounds);
}

}  // namespace
}  // namespace cistern
