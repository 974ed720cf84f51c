// What do random values cost on the simulated device, where the host makes them? 64 MiB in one fill, against a
// plain fill of the same memory (cuMemsetD32Async).

#include <cistern/simulated.h>

#include <benchmark/benchmark.h>

#include <functional>

#include "runtime/driver_api.h"

namespace cistern {
namespace {

constexpr std::size_t kValues = std::size_t{16} << 20;

void fill(benchmark::State& state, const std::function<CUresult(const DriverApi& api, CUdeviceptr memory)>& queue) {
  SimulatedDriver driver({.capacity_bytes = std::size_t{1} << 30});
  const DriverApi& api = driver.api();
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  if (api.init(0) != CUDA_SUCCESS || api.primary_ctx_retain(&context, 0) != CUDA_SUCCESS ||
      api.ctx_set_current(context) != CUDA_SUCCESS || api.mem_alloc(&memory, kValues * 4) != CUDA_SUCCESS ||
      api.memset_d32_async(memory, 0, kValues, nullptr) != CUDA_SUCCESS || api.ctx_synchronize() != CUDA_SUCCESS) {
    state.SkipWithError("the simulated device cannot be used");
    return;
  }
  for (auto _ : state) {
    if (queue(api, memory) != CUDA_SUCCESS || api.ctx_synchronize() != CUDA_SUCCESS) {
      state.SkipWithError("a fill was refused");
      return;
    }
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * kValues * 4));
}

void random_fill(benchmark::State& state, RandomKind kind) {
  std::uint64_t position = 0;
  fill(state, [&](const DriverApi& api, CUdeviceptr memory) {
    const RandomFill values{.kind = kind, .destination = memory, .count = kValues, .seed = 1, .position = position};
    position += kValues;
    return api.fill_random(values, nullptr);
  });
}

void plain_fill(benchmark::State& state) {
  fill(state,
       [](const DriverApi& api, CUdeviceptr memory) { return api.memset_d32_async(memory, 7, kValues, nullptr); });
}

BENCHMARK(plain_fill)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(random_fill, words, RandomKind::words)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(random_fill, uniform, RandomKind::uniform)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(random_fill, normal, RandomKind::normal)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace cistern
