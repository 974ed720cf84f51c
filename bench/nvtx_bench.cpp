// What do marks and ranges cost where no tool is attached? Against a call that does nothing.

#include <cistern/nvtx.h>

#include <benchmark/benchmark.h>

namespace cistern {
namespace {

[[gnu::noinline]] void nothing(const char* message) { benchmark::DoNotOptimize(message); }

void call_of_nothing(benchmark::State& state) {
  for (auto _ : state) nothing("message");
}

void nvtx_mark(benchmark::State& state) {
  for (auto _ : state) nvtx::mark("message");
}

void nvtx_range(benchmark::State& state) {
  for (auto _ : state) {
    nvtx::range_push("message");
    benchmark::DoNotOptimize(nvtx::range_pop());
  }
}

void nvtx_domain_mark(benchmark::State& state) {
  const nvtx::Domain domain("bench");
  for (auto _ : state) domain.mark("message");
}

BENCHMARK(call_of_nothing);
BENCHMARK(nvtx_mark);
BENCHMARK(nvtx_range);
BENCHMARK(nvtx_domain_mark);

}  // namespace
}  // namespace cistern
