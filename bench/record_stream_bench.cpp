// What does a block cost that another stream has used? Allocate, record_stream, free and, in the
// next turn, reuse of the block, beside the plain pair. The free needs an event of the driver: how many calls
// that makes, and what they take alone on the same driver, is counted apart.

#include <cistern/error.h>
#include <cistern/simulated.h>

#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include "bench/comparison.h"
#include "bench/hot_heap.h"
#include "bench/pairs.h"
#include "runtime/driver_api.h"

namespace cistern {
namespace {

constexpr std::size_t kBytes = 4096;
constexpr std::size_t kPairs = 2000;
constexpr int kRounds = 101;

void require(CUresult result) {
  if (result != CUDA_SUCCESS) throw std::runtime_error("the simulated driver refused a call");
}

// The driver's calls alone, as often a pair as the allocator makes them.
class BareCalls {
 public:
  explicit BareCalls(const Stream& stream) : api_(simulated::driver().api()), stream_(stream.native_handle()) {
    require(api_.primary_ctx_retain(&context_, 0));
    require(api_.ctx_set_current(context_));
    require(api_.event_create(&event_, CU_EVENT_DISABLE_TIMING));
    require(api_.event_record(event_, stream_));
  }
  ~BareCalls() {
    static_cast<void>(api_.event_destroy(event_));
    static_cast<void>(api_.primary_ctx_release(0));
  }
  BareCalls(const BareCalls&) = delete;
  BareCalls& operator=(const BareCalls&) = delete;

  // Makes so many calls of `entry`, one after the other. Throws for one that it cannot make.
  [[nodiscard]] std::function<void()> of(const std::string& entry, std::size_t count) {
    if (entry == "cuEventRecord") return repeat(count, [this] { require(api_.event_record(event_, stream_)); });
    if (entry == "cuEventQuery") return repeat(count, [this] { require(api_.event_query(event_)); });
    if (entry == "cuCtxGetCurrent")
      return repeat(count, [this] {
        CUcontext current = nullptr;
        require(api_.ctx_get_current(&current));
      });
    if (entry == "cuCtxSetCurrent") return repeat(count, [this] { require(api_.ctx_set_current(context_)); });
    if (entry == "cuStreamGetId")
      return repeat(count, [this] {
        unsigned long long id = 0;
        require(api_.stream_get_id(stream_, &id));
      });
    if (entry == "cuStreamIsCapturing")
      return repeat(count, [this] {
        CUstreamCaptureStatus status{};
        require(api_.stream_is_capturing(stream_, &status));
      });
    throw NotSupported("the benchmark does not know how to time " + entry + " alone");
  }

 private:
  // The call is known where the loop is: a call through a std::function each time would count as the driver's.
  template <class Call>
  static std::function<void()> repeat(std::size_t count, Call call) {
    return [count, call] {
      for (std::size_t i = 0; i < count; ++i) call();
    };
  }

  const DriverApi& api_;
  CUstream stream_;
  CUcontext context_ = nullptr;
  CUevent event_ = nullptr;
};

using Calls = std::map<std::string, std::uint64_t>;

Calls calls_of_pairs(const RecordedHeap& recorded) {
  run_pairs(recorded, kBytes, 100);
  const Calls before = simulated::driver().calls_by_name();
  run_pairs(recorded, kBytes, kPairs);
  Calls calls = simulated::driver().calls_by_name();
  for (const auto& [entry, count] : before) calls[entry] -= count;
  std::erase_if(calls, [](const auto& each) { return each.second == 0; });
  return calls;
}

void record_stream_pair(benchmark::State& state) {
  HotHeap off(Ring::off);
  HotHeap on(Ring::on);
  HotHeap plain_off(Ring::off);
  HotHeap plain_on(Ring::on);
  const Stream owner = Stream::create();
  const Stream user = Stream::create();
  const RecordedHeap recorded{&off.allocator(), &owner, &user};
  const RecordedHeap recorded_on{&on.allocator(), &owner, &user};
  const Calls calls = calls_of_pairs(recorded);
  BareCalls bare(user);
  std::vector<std::function<void()>> driver_work;
  std::uint64_t sum = 0;
  for (const auto& [entry, count] : calls) {
    driver_work.push_back(bare.of(entry, count));
    sum += count;
    state.counters[entry] = static_cast<double>(count) / kPairs;
  }
  compare(state, kRounds,
          {{"cistern_ns", [&] { return time_pairs(recorded, kBytes, kPairs); }},
           {"history_ns", [&] { return time_pairs(recorded_on, kBytes, kPairs); }},
           {"plain_ns", [&] { return time_pairs(plain_off.on_stream(owner), kBytes, kPairs); }},
           {"plain_history_ns", [&] { return time_pairs(plain_on.on_stream(owner), kBytes, kPairs); }},
           {"driver_ns", [&] {
              return nanoseconds_each(kPairs, [&] {
                for (const auto& work : driver_work) work();
              });
            }}});
  state.counters["driver_calls"] = static_cast<double>(sum) / kPairs;
}

BENCHMARK(record_stream_pair)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
