// How many operations a second does the simulated driver do on one core? Stepped, without the
// race detector. An operation is a launch, a record of an event or a wait for one, queued and done;
// the steps that do them, and what the host asks, come on top and are not counted.

#include <cistern/simulated.h>

#include <benchmark/benchmark.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <stdexcept>

#include "runtime/driver_api.h"

namespace cistern {
namespace {

constexpr std::size_t kStreams = 4;
constexpr std::size_t kRounds = 256;

void require(CUresult result) {
  if (result != CUDA_SUCCESS) throw std::runtime_error("the simulated driver refused a call");
}

struct Bench {
  Bench() {
    require(api.init(0));
    CUcontext context = nullptr;
    require(api.primary_ctx_retain(&context, 0));
    require(api.ctx_set_current(context));
    for (std::size_t i = 0; i < kStreams; ++i) {
      streams[i] = driver.create_stream();
      require(api.event_create(&events[i], CU_EVENT_DISABLE_TIMING));
    }
  }

  SimulatedDriver driver{{.capacity_bytes = std::size_t{64} << 20}};
  const DriverApi& api = driver.api();
  std::array<CUstream, kStreams> streams{};
  std::array<CUevent, kStreams> events{};
};

// Streams that hand work to one another: each waits for its neighbour's event, works, records.
void queue_round(Bench& bench, std::size_t round, std::size_t& ran) {
  for (std::size_t i = 0; i < kStreams; ++i) {
    const std::size_t neighbour = (i + round) % kStreams;
    require(bench.api.stream_wait_event(bench.streams[i], bench.events[neighbour], 0));
    bench.driver.launch(bench.streams[i], {}, {}, std::chrono::nanoseconds(10), [&ran] { ++ran; });
    require(bench.api.event_record(bench.events[i], bench.streams[i]));
  }
}

void count_operations(benchmark::State& state, std::size_t per_round) {
  const auto rounds = static_cast<std::size_t>(state.iterations()) * kRounds;
  state.SetItemsProcessed(static_cast<std::int64_t>(rounds * per_round));
}

void stepped_one_by_one(benchmark::State& state) {
  Bench bench;
  std::size_t ran = 0;
  while (state.KeepRunning()) {
    for (std::size_t round = 0; round < kRounds; ++round) {
      queue_round(bench, round, ran);
      for (std::size_t i = 0; i < kStreams; ++i) {
        if (!bench.driver.step()) throw std::runtime_error("nothing to step");
      }
    }
  }
  count_operations(state, 3 * kStreams);
}

void queued_then_stepped(benchmark::State& state) {
  Bench bench;
  std::size_t ran = 0;
  while (state.KeepRunning()) {
    for (std::size_t round = 0; round < kRounds; ++round) queue_round(bench, round, ran);
    bench.driver.run_until_idle();
  }
  count_operations(state, 3 * kStreams);
}

void queued_then_waited_for(benchmark::State& state) {
  Bench bench;
  std::size_t ran = 0;
  while (state.KeepRunning()) {
    for (std::size_t round = 0; round < kRounds; ++round) queue_round(bench, round, ran);
    require(bench.api.ctx_synchronize());
  }
  count_operations(state, 3 * kStreams);
}

void launches_alone(benchmark::State& state) {
  Bench bench;
  std::size_t ran = 0;
  while (state.KeepRunning()) {
    for (std::size_t round = 0; round < kRounds; ++round) {
      for (const CUstream stream : bench.streams) {
        bench.driver.launch(stream, {}, {}, std::chrono::nanoseconds(10), [&ran] { ++ran; });
        bench.driver.step(stream);
      }
    }
  }
  count_operations(state, kStreams);
}

BENCHMARK(stepped_one_by_one);
BENCHMARK(queued_then_stepped);
BENCHMARK(queued_then_waited_for);
BENCHMARK(launches_alone);

}  // namespace
}  // namespace cistern
