// Several host threads on a free-running driver: streams, events, callbacks, memory, all at once.
// Clean under ThreadSanitizer; what streams and events order is checked by what the work sees.
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tests/property.h"
#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

constexpr int kWorkers = 4;
constexpr int kSeed = 20261121;

template <class Body>
void in_threads(Body body) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kWorkers; ++thread) threads.emplace_back(body, thread);
  for (std::thread& thread : threads) thread.join();
}

ReadyDriver make_large(int devices = 1) {
  return ReadyDriver({.devices = devices, .capacity_bytes = 256 * MiB, .drive = Drive::free});
}

// A stream whose work touches a number that only the stream's order guards.
struct Lane {
  StreamHandle stream = nullptr;
  std::mutex submission;  // so that `queued` and the stream's order agree
  int queued = 0;
  int seen = 0;
  std::atomic<int> out_of_order{0};

  void work(int expected) {
    if (seen != expected) ++out_of_order;
    ++seen;
  }
  static void by_callback(CUstream, CUresult status, void* lane) {
    auto& self = *static_cast<Lane*>(lane);
    if (status != CUDA_SUCCESS) ++self.out_of_order;
    ++self.seen;
  }
  static void by_host_function(void* lane) { ++static_cast<Lane*>(lane)->seen; }
};

class LaneSubmitter {
 public:
  LaneSubmitter(ReadyDriver& ready, Lane& lane) : ready_(ready), lane_(lane) {}
  void submit(unsigned kind) {
    const std::lock_guard lock(lane_.submission);
    const int expected = lane_.queued++;
    if (kind == 0) {
      EXPECT_EQ(ready_.api.stream_add_callback(lane_.stream, Lane::by_callback, &lane_, 0), CUDA_SUCCESS);
    } else if (kind == 1) {
      EXPECT_EQ(ready_.api.launch_host_func(lane_.stream, Lane::by_host_function, &lane_), CUDA_SUCCESS);
    } else {
      ready_.driver.launch(lane_.stream, {}, {}, 1us, [&lane = lane_, expected] { lane.work(expected); });
    }
  }

 private:
  ReadyDriver& ready_;
  Lane& lane_;
};

TEST(FreeDriveStress, EachStreamRunsItsWorkInOrderWhoeverQueuesItAndWhateverElseGoesOn) {
  std::array<Lane, 6> lanes;
  ReadyDriver ready = make_large();
  std::vector<CUevent> events;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    // Two blocking ones, so that the legacy stream's rules are at work as well.
    lanes[i].stream = i < 2 ? ready.create_blocking_stream() : ready.driver.create_stream(0, -static_cast<int>(i));
    events.push_back(ready.create_event());
  }
  const int rounds = static_cast<int>(scaled(10000));
  in_threads([&](int thread) {
    ready.use(0);
    std::mt19937 random(static_cast<unsigned>(kSeed + thread));
    for (int round = 0; round < rounds; ++round) {
      Lane& lane = lanes[random() % lanes.size()];
      const CUevent event = events[random() % events.size()];
      LaneSubmitter(ready, lane).submit(static_cast<unsigned>(random() % 6));
      switch (random() % 8) {
        case 0:
          EXPECT_EQ(ready.api.event_record(event, lane.stream), CUDA_SUCCESS);
          break;
        case 1:
          EXPECT_EQ(ready.api.stream_wait_event(lane.stream, event, 0), CUDA_SUCCESS);
          break;
        case 2:
          EXPECT_EQ(ready.api.event_synchronize(event), CUDA_SUCCESS);
          break;
        case 3:
          EXPECT_EQ(ready.api.stream_synchronize(lane.stream), CUDA_SUCCESS);
          break;
        case 4:
          ready.driver.occupy(round % 2 == 0 ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD, 1us);
          break;
        case 5:
          EXPECT_NE(ready.api.event_query(event), CUDA_ERROR_INVALID_HANDLE);
          break;
        default:
          break;
      }
    }
  });
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
  for (const Lane& lane : lanes) {
    EXPECT_EQ(lane.seen, lane.queued) << "seed " << kSeed;
    EXPECT_EQ(lane.out_of_order, 0) << "seed " << kSeed;
  }
}

TEST(FreeDriveStress, EventsHandPlainDataFromStreamToStream) {
  constexpr int kRounds = 200;
  std::array<int, kWorkers> data{};  // each guarded by the events of its chain
  std::atomic<int> wrong{0};
  ReadyDriver ready = make_large();
  in_threads([&](int thread) {
    ready.use(0);
    int& value = data[static_cast<std::size_t>(thread)];
    const StreamHandle first = ready.driver.create_stream();
    const StreamHandle second = ready.driver.create_stream();
    const CUevent there = ready.create_event();
    const CUevent back = ready.create_event();
    for (int round = 0; round < kRounds; ++round) {
      EXPECT_EQ(ready.api.stream_wait_event(first, back, 0), CUDA_SUCCESS);
      ready.driver.launch(first, {}, {}, 1us, [&value] { ++value; });
      EXPECT_EQ(ready.api.event_record(there, first), CUDA_SUCCESS);
      EXPECT_EQ(ready.api.stream_wait_event(second, there, 0), CUDA_SUCCESS);
      ready.driver.launch(second, {}, {}, 1us, [&value, &wrong, round] {
        if (value != round + 1) ++wrong;
      });
      EXPECT_EQ(ready.api.event_record(back, second), CUDA_SUCCESS);
    }
    EXPECT_EQ(ready.api.event_synchronize(back), CUDA_SUCCESS);
    EXPECT_EQ(value, kRounds);
  });
  EXPECT_EQ(wrong, 0);
}

TEST(FreeDriveStress, StreamsEventsAndMemoryComeAndGoUnderWorkThatRuns) {
  std::atomic<int> ran{0};
  ReadyDriver ready = make_large(2);
  const int rounds = static_cast<int>(scaled(1000));
  in_threads([&](int thread) {
    for (int round = 0; round < rounds; ++round) {
      ready.use((thread + round) % 2);
      CUstream stream = nullptr;
      EXPECT_EQ(ready.api.stream_create_with_priority(
                    &stream, round % 2 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING, -(round % 6)),
                CUDA_SUCCESS);
      const CUevent event = ready.create_event();
      const CUdeviceptr pointer = ready.allocate(2 * MiB);
      EXPECT_EQ(ready.api.memset_d8_async(pointer, 7, 4096, stream), CUDA_SUCCESS);
      ready.driver.launch(stream, {{reinterpret_cast<void*>(pointer), 4096}}, {}, 1us, [&ran, pointer] {
        if (*reinterpret_cast<const unsigned char*>(pointer + 4095) == 7) ++ran;
      });
      EXPECT_EQ(ready.api.event_record(event, stream), CUDA_SUCCESS);
      EXPECT_EQ(ready.api.stream_wait_event(nullptr, event, 0), CUDA_SUCCESS);
      EXPECT_EQ(ready.api.stream_destroy(stream), CUDA_SUCCESS);
      if (round % 3 == 0) {
        EXPECT_EQ(ready.api.event_synchronize(event), CUDA_SUCCESS);
      }
      EXPECT_EQ(ready.api.event_destroy(event), CUDA_SUCCESS);
      EXPECT_EQ(ready.api.mem_free(pointer), CUDA_SUCCESS);  // waits for the device
    }
  });
  ready.driver.run_until_idle();
  EXPECT_EQ(ran, kWorkers * rounds);
  EXPECT_EQ(ready.driver.used_bytes(0) + ready.driver.used_bytes(1), 0u);
}

TEST(FreeDriveStress, DriversComeAndGoWithWorkQueued) {
  for (int round = 0; round < static_cast<int>(scaled(300)); ++round) {
    const auto ran = std::make_shared<std::atomic<int>>(0);
    {
      ReadyDriver ready = make_large();
      for (int i = 0; i < 8; ++i) {
        const StreamHandle stream = ready.driver.create_stream();
        for (int j = 0; j < 4; ++j) ready.driver.launch(stream, {}, {}, 1us, [ran] { ++*ran; });
      }
      if (round % 2 == 0) {
        EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
        EXPECT_EQ(*ran, 32);
      }
    }
    EXPECT_EQ(ran.use_count(), 1) << "work that was dropped is still held";
  }
}

}  // namespace
}  // namespace cistern
