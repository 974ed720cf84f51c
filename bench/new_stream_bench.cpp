// What does the first allocation on a new stream cost on a device that is warm? Beside the driver's
// calls: each is timed, and taken off. 4 KiB, once for each of many streams.

#include <cistern/simulated.h>

#include <algorithm>

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

struct FirstAllocations {
  std::vector<double> own_ns;  // ascending
  double driver_calls = 0;     // of one
};

FirstAllocations first_allocations(Ring ring) {
  SimulatedDriver simulated({.backing = Backing::none});
  const DriverAround<InDriver> driver(simulated.api());
  CachingAllocator allocator({.driver = &driver.api(), .options = hot_options()});
  allocator.record_history(history_of(ring));
  for (int i = 0; i < 1000; ++i) allocator.deallocate(allocator.allocate(kBytes));

  FirstAllocations result;
  InDriver::calls = 0;
  for (std::size_t i = 0; i < kStreams; ++i) {
    const StreamHandle stream = simulated.create_stream();
    InDriver::ticks = 0;
    const std::uint64_t start = time_stamp();
    void* pointer = allocator.allocate(kBytes, stream);
    const std::uint64_t took = time_stamp() - start;
    benchmark::DoNotOptimize(pointer);
    result.own_ns.push_back(static_cast<double>(took - InDriver::ticks) * nanoseconds_a_tick());
  }
  result.driver_calls = static_cast<double>(InDriver::calls) / kStreams;
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
}

BENCHMARK(first_allocation_on_new_stream)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
