// Several host threads on one driver, and several drivers in one process. Clean under ThreadSanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "runtime/simulated/driver_state.h"
#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::GiB;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

template <class Body>
void in_threads(int count, Body body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

TEST(SimulatedThreads, AllWhoWaitForOneStreamSeeItsWorkDone) {
  ReadyDriver ready;
  const StreamHandle stream = ready.driver.create_stream();
  int ran = 0;  // guarded by the order of the stream and the synchronisations
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 4; ++i) ready.driver.launch(stream, {}, {}, 1us, [&ran] { ++ran; });
    in_threads(4, [&](int) {
      ready.use(0);
      EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_SUCCESS);
      EXPECT_EQ(ran, 4 * (round + 1));
    });
  }
}

TEST(SimulatedThreads, OneFunctionRunsAtATime) {
  ReadyDriver ready;
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  in_threads(4, [&](int) {
    ready.use(0);
    const StreamHandle stream = ready.driver.create_stream();
    for (int i = 0; i < 100; ++i) {
      ready.driver.launch(stream, {}, {}, 1us, [&] {
        const int now = ++inside;
        if (now > most) most = now;
        --inside;
      });
      if (i % 10 == 0) {
        EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_SUCCESS);
      }
    }
    EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_SUCCESS);
  });
  EXPECT_EQ(most, 1);
}

TEST(SimulatedThreads, MemoryIsHandedOutOnce) {
  ReadyDriver ready({.capacity_bytes = 4 * GiB});
  in_threads(4, [&](int thread) {
    ready.use(0);
    const auto mark = static_cast<unsigned char>(thread + 1);
    std::vector<CUdeviceptr> pointers;
    for (int round = 0; round < 20; ++round) {
      for (const std::size_t bytes : {std::size_t{700}, 2 * MiB}) {
        pointers.push_back(ready.allocate(bytes));
        EXPECT_EQ(ready.api.memset_d8_async(pointers.back(), mark, 700, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
      }
    }
    EXPECT_EQ(ready.api.stream_synchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    for (const CUdeviceptr pointer : pointers) {
      EXPECT_EQ(reinterpret_cast<const unsigned char*>(pointer)[699], mark);
      EXPECT_EQ(ready.api.mem_free(pointer), CUDA_SUCCESS);
    }
  });
  EXPECT_EQ(ready.driver.used_bytes(), 0u);
}

TEST(SimulatedThreads, OfTwoWhoFreeAPointerOneSucceeds) {
  ReadyDriver ready;
  const StreamHandle stream = ready.driver.create_stream();
  for (int round = 0; round < 20; ++round) {
    const CUdeviceptr pointer = ready.allocate(2 * MiB);
    const std::uint64_t waiting = ready.driver.host_synchronizations();
    // Runs until both have found the pointer and wait for the device.
    ready.driver.launch(stream, {}, {}, 1us, [&ready, waiting] {
      while (ready.driver.host_synchronizations() < waiting + 2) std::this_thread::yield();
    });
    std::atomic<int> freed{0};
    in_threads(2, [&](int) {
      ready.use(0);
      const CUresult result = ready.api.mem_free(pointer);
      EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE);
      if (result == CUDA_SUCCESS) ++freed;
    });
    EXPECT_EQ(freed, 1);
  }
  EXPECT_EQ(ready.driver.used_bytes(), 0u);
}

TEST(SimulatedThreads, MemoryIsNotFreedUnderAFunctionThatRuns) {
  ReadyDriver ready({.devices = 2, .capacity_bytes = 64 * MiB});
  const CUdeviceptr pointer = ready.allocate(2 * MiB);
  auto* memory = reinterpret_cast<unsigned char*>(pointer);
  const StreamHandle there = ready.driver.create_stream(1);  // a device whose work the free does not wait for
  ready.enable_peer(1, 0);
  std::atomic<bool> running{false};
  std::atomic<bool> finished{false};
  ready.driver.launch(there, {}, {{memory, 2 * MiB}}, 1us, [&] {
    running = true;
    while (ready.driver.calls("cuMemFree") == 0) std::this_thread::yield();
    for (std::size_t i = 0; i < 2 * MiB; i += 64) memory[i] = 1;
    finished = true;
  });
  std::thread runner([&] { EXPECT_TRUE(ready.driver.step()); });
  while (!running) std::this_thread::yield();
  EXPECT_EQ(ready.api.mem_free(pointer), CUDA_SUCCESS);
  EXPECT_TRUE(finished);
  runner.join();
}

TEST(SimulatedThreads, EventsHandWorkFromThreadToThread) {
  ReadyDriver ready;
  constexpr int kRecorders = 4;
  std::vector<StreamHandle> streams;
  std::vector<CUevent> events;
  for (int i = 0; i < kRecorders; ++i) {
    streams.push_back(ready.driver.create_stream());
    events.push_back(ready.create_event());
  }
  in_threads(kRecorders, [&](int thread) {
    ready.use(0);
    const auto mine = static_cast<std::size_t>(thread);
    for (int round = 0; round < 100; ++round) {
      const std::size_t other = (mine + static_cast<std::size_t>(round)) % kRecorders;
      EXPECT_EQ(ready.api.stream_wait_event(streams[mine], events[other], 0), CUDA_SUCCESS);
      ready.driver.occupy(streams[mine], 1us);
      EXPECT_EQ(ready.api.event_record(events[mine], streams[mine]), CUDA_SUCCESS);
      const CUresult query = ready.api.event_query(events[other]);
      EXPECT_TRUE(query == CUDA_SUCCESS || query == CUDA_ERROR_NOT_READY);
      if (round % 7 == 0) {
        EXPECT_EQ(ready.api.event_synchronize(events[other]), CUDA_SUCCESS);
      }
      if (round % 13 == 0) ready.driver.step();
    }
  });
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_FALSE(ready.driver.step());
}

TEST(SimulatedThreads, StreamsAndEventsComeAndGoWhileOthersWait) {
  ReadyDriver ready;
  in_threads(4, [&](int) {
    ready.use(0);
    for (int round = 0; round < 100; ++round) {
      CUstream stream = nullptr;
      EXPECT_EQ(ready.api.stream_create_with_priority(&stream,
                                                      round % 2 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING, 0),
                CUDA_SUCCESS);
      const CUevent event = ready.create_event();
      ready.driver.occupy(stream, 1us);
      EXPECT_EQ(ready.api.event_record(event, stream), CUDA_SUCCESS);
      EXPECT_EQ(ready.api.stream_destroy(stream), CUDA_SUCCESS);
      if (round % 5 == 0) {
        EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
      }
      EXPECT_EQ(ready.api.event_destroy(event), CUDA_SUCCESS);
    }
  });
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
}

TEST(SimulatedThreads, NothingIsKeptForThreadsThatEnded) {
  ReadyDriver ready;
  simulated::DriverState& state = *simulated::find_driver_state(ready.api);
  const std::size_t streams = state.executor.device(0).blocking.size();
  const std::size_t threads = state.current.threads();
  int ran = 0;
  for (int i = 0; i < 50; ++i) {
    in_threads(1, [&](int) {
      ready.use(0);
      ready.driver.launch(CU_STREAM_PER_THREAD, {}, {}, 1us, [&ran] { ++ran; });
      EXPECT_EQ(ready.api.stream_synchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    });
  }
  EXPECT_EQ(ran, 50);
  EXPECT_EQ(state.executor.device(0).blocking.size(), streams);
  EXPECT_EQ(state.current.threads(), threads);
}

TEST(SimulatedThreads, WorkOfAThreadThatEndedIsStillDone) {
  ReadyDriver ready;
  simulated::DriverState& state = *simulated::find_driver_state(ready.api);
  const std::size_t streams = state.executor.device(0).blocking.size();
  std::vector<int> order;
  in_threads(1, [&](int) {
    ready.use(0);
    ready.note(CU_STREAM_PER_THREAD, order, 1);
  });
  ready.note(nullptr, order, 2);  // the legacy stream waits for it
  EXPECT_EQ(ready.api.stream_synchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  ready.driver.destroy_stream(ready.driver.create_stream());  // what is done goes with the next
  EXPECT_EQ(state.executor.device(0).blocking.size(), streams);
}

TEST(SimulatedThreads, AThreadMayEndAfterItsDriver) {
  std::atomic<bool> used{false};
  std::atomic<bool> gone{false};
  std::thread thread;
  {
    ReadyDriver ready;
    thread = std::thread([&] {
      ready.use(0);
      EXPECT_EQ(ready.api.stream_synchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
      used = true;
      while (!gone) std::this_thread::yield();
    });
    while (!used) std::this_thread::yield();
  }
  gone = true;
  thread.join();
  ReadyDriver next;
  EXPECT_EQ(next.api.stream_synchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
}

// Uses the driver while its thread ends.
struct UsesDriverAtExit {
  const DriverApi* api = nullptr;
  CUresult* result = nullptr;
  ~UsesDriverAtExit() {
    if (api != nullptr) *result = api->stream_synchronize(CU_STREAM_PER_THREAD);
  }
};

TEST(SimulatedThreads, ObjectsOfAThreadThatEndsStillFindItsStreams) {
  ReadyDriver ready;
  std::vector<int> order;
  CUresult result = CUDA_ERROR_UNKNOWN;
  in_threads(1, [&](int) {
    thread_local UsesDriverAtExit at_exit;
    at_exit.api = &ready.api;
    at_exit.result = &result;
    ready.use(0);
    ready.note(CU_STREAM_PER_THREAD, order, 1);
  });
  EXPECT_EQ(result, CUDA_SUCCESS);
  EXPECT_EQ(order, std::vector<int>{1});
}

TEST(SimulatedThreads, EachThreadMayHaveItsOwnDriver) {
  in_threads(4, [&](int thread) {
    ReadyDriver ready({.capacity_bytes = 64 * MiB});
    std::vector<int> order;
    for (int i = 0; i < 20; ++i) ready.note(CU_STREAM_PER_THREAD, order, i);
    const CUdeviceptr pointer = ready.allocate(static_cast<std::size_t>(thread + 1) * MiB);
    EXPECT_EQ(ready.api.mem_free(pointer), CUDA_SUCCESS);
    EXPECT_EQ(order.size(), 20u);
  });
}

}  // namespace
}  // namespace cistern
