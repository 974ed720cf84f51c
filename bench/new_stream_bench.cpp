// What does the first allocation on a new stream cost on a device that is warm? Beside the driver's
// calls: each is timed, and taken off, and so is what timing so many calls takes by itself. 4 KiB, once for each of
// many streams.

#include <cistern/simulated.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/comparison.h"
#include "bench/driver_around.h"
#include "bench/hot_heap.h"
#include "bench/time_stamp.h"

namespace cistern {
namespace {

constexpr std::size_t kStreams = 1000;
constexpr std::size_t kBytes = 4096;

// The driver's share of what one thread does.
struct InDriver {
  static inline thread_local std::uint64_t ticks = 0;
  static inline thread_local std::uint64_t calls = 0;

  InDriver() : start_(time_stamp()) {}
  ~InDriver() {
    ticks += time_stamp() - start_;
    ++calls;
  }
  InDriver(const InDriver&) = delete;
  InDriver& operator=(const InDriver&) = delete;

 private:
  std::uint64_t start_;
};

// What is left of a request that only makes calls of a driver that does nothing: the readings of the clock, which let
// nothing overlap with them.
class StopWatch {
 public:
  StopWatch() {
    nothing_.ctx_get_current = {nullptr, [](void*, CUcontext*) { return CUDA_SUCCESS; }};
  }
  // In ticks, of a request with so many calls; the median of many.
  [[nodiscard]] std::uint64_t of(std::size_t calls) {
    while (of_calls_.size() <= calls) of_calls_.push_back(measure(of_calls_.size()));
    return of_calls_[calls];
  }

 private:
  [[nodiscard]] std::uint64_t measure(std::size_t calls) const {
    const DriverAround<InDriver> driver(nothing_);
    std::vector<std::uint64_t> own(999);
    for (std::uint64_t& ticks : own) {
      CUcontext context = nullptr;
      InDriver::ticks = 0;
      const std::uint64_t start = time_stamp();
      for (std::size_t i = 0; i < calls; ++i) benchmark::DoNotOptimize(driver.api().ctx_get_current(&context));
      ticks = time_stamp() - start - InDriver::ticks;
    }
    std::ranges::nth_element(own, own.begin() + static_cast<std::ptrdiff_t>(own.size() / 2));
    return own[own.size() / 2];
  }

  DriverApi nothing_;
  std::vector<std::uint64_t> of_calls_;
};

struct FirstAllocations {
  std::vector<double> own_ns;  // ascending
  double driver_calls = 0;     // of one
  double stop_watch_ns = 0;    // taken off, of one
};

FirstAllocations first_allocations(Ring ring) {
  SimulatedDriver simulated({.backing = Backing::none});
  const DriverAround<InDriver> driver(simulated.api());
  CachingAllocator allocator({.driver = &driver.api(), .options = hot_options()});
  allocator.record_history(history_of(ring));
  for (int i = 0; i < 1000; ++i) allocator.deallocate(allocator.allocate(kBytes));

  FirstAllocations result;
  StopWatch stop_watch;
  std::uint64_t calls = 0;
  std::uint64_t timing = 0;
  for (std::size_t i = 0; i < kStreams; ++i) {
    const StreamHandle stream = simulated.create_stream();
    InDriver::ticks = InDriver::calls = 0;
    const std::uint64_t start = time_stamp();
    void* pointer = allocator.allocate(kBytes, stream);
    const std::uint64_t took = time_stamp() - start;
    benchmark::DoNotOptimize(pointer);
    const std::uint64_t own = took - InDriver::ticks;
    calls += InDriver::calls;
    const std::uint64_t of_timing = std::min(stop_watch.of(InDriver::calls), own);
    timing += of_timing;
    result.own_ns.push_back(static_cast<double>(own - of_timing) * nanoseconds_a_tick());
  }
  result.driver_calls = static_cast<double>(calls) / kStreams;
  result.stop_watch_ns = static_cast<double>(timing) * nanoseconds_a_tick() / kStreams;
  std::ranges::sort(result.own_ns);
  return result;
}

void first_allocation_on_new_stream(benchmark::State& state) {
  FirstAllocations off;
  FirstAllocations on;
  while (state.KeepRunning()) {
    off = first_allocations(Ring::off);
    on = first_allocations(Ring::on);
    state.SetIterationTime(off.own_ns[kStreams / 2] * 1e-9);
  }
  state.counters["cistern_ns"] = off.own_ns[kStreams / 2];
  state.counters["history_ns"] = on.own_ns[kStreams / 2];
  state.counters["cistern_p99_ns"] = off.own_ns[kStreams * 99 / 100];
  state.counters["history_p99_ns"] = on.own_ns[kStreams * 99 / 100];
  state.counters["driver_calls"] = off.driver_calls;
  state.counters["stop_watch_ns"] = off.stop_watch_ns;
}

BENCHMARK(first_allocation_on_new_stream)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
