// What does an operation of a real trace cost? Each trace of the folder that CISTERN_BENCH_TRACES names
// is passed through the library and, the same requests in the same order, through the peer, which ignores
// record_stream. An operation is an allocation, a record, a free, or the free of what a pass left live.
// The driver's part is in our time: driver_calls are those of an operation.

#include <cistern/simulated.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "bench/comparison.h"
#include "bench/hot_heap.h"
#include "bench/trace_pass.h"

namespace cistern {
namespace {

// A round is a pass; of short traces there are more.
int rounds_of(const Trace& trace) {
  constexpr std::size_t kOperations = 800000;
  return static_cast<int>(std::clamp<std::size_t>(kOperations / operations_of(trace), 9, 101));
}

// Some peers take a thousand times as long as ours, which the others need not wait for: one pass then.
int rounds_beside(double seconds_of_a_pass, const Trace& trace) {
  constexpr double kSeconds = 4;
  const auto in_time = static_cast<int>(std::min(kSeconds / seconds_of_a_pass, 1e6));
  return std::clamp(in_time, 1, rounds_of(trace));
}

class OwnTrace {
 public:
  OwnTrace(Ring ring, const Trace& trace, const std::map<std::uint32_t, Stream>& streams) : heap_(ring) {
    for (std::uint32_t i = 0; i <= (trace.streams.empty() ? 0 : trace.streams.back()); ++i) {
      const auto found = streams.find(i);
      streams_.push_back(found == streams.end() ? Stream() : found->second);
    }
  }
  void* allocate(const TraceOperation& operation) {
    return heap_.allocator().allocate(operation.bytes, streams_[operation.stream]);
  }
  void record(void* block, const TraceOperation& operation) {
    heap_.allocator().record_stream(block, streams_[operation.stream]);
  }
  void release(void* block) { heap_.release(block); }

 private:
  std::vector<Stream> streams_;  // by number
  HotHeap heap_;
};

struct PeerTrace {
  const Peer& peer;
  void* allocate(const TraceOperation& operation) { return peer.allocate(operation.bytes); }
  void record(void* block, const TraceOperation& /*operation*/) { benchmark::DoNotOptimize(block); }
  void release(void* block) { peer.release(block); }
};

// Throws if the peer does not serve a request: failing is fast.
struct CheckedPeerTrace : PeerTrace {
  void* allocate(const TraceOperation& operation) {
    void* block = PeerTrace::allocate(operation);
    if (block == nullptr) throw std::runtime_error(std::string(peer.name) + " does not serve the trace's requests");
    return block;
  }
};

template <class Allocator>
TimedWay way_of(const Trace& trace, Allocator& allocator, std::vector<void*>& blocks) {
  return [&trace, &allocator, &blocks] {
    return nanoseconds_each(operations_of(trace), [&] { pass(trace, allocator, blocks); });
  };
}

void trace_replay(benchmark::State& state, const std::string& path) {
  use_accounting_device();
  const Trace trace = read_trace(path);
  if (trace.requests() == 0) {
    state.SkipWithError("a trace without a request");
    return;
  }
  std::map<std::uint32_t, Stream> streams;
  for (const std::uint32_t number : trace.streams)
    if (number != 0) streams.emplace(number, Stream::create());
  OwnTrace off(Ring::off, trace, streams);
  OwnTrace on(Ring::on, trace, streams);
  std::unique_ptr<PeerTrace> theirs;
  if (const Peer* peer = process_peer()) theirs = std::make_unique<PeerTrace>(PeerTrace{*peer});
  std::vector<void*> blocks(trace.id_count, nullptr);
  int rounds = rounds_of(trace);
  if (theirs != nullptr) {
    CheckedPeerTrace checked{*theirs};
    rounds = rounds_beside(nanoseconds_each(1, [&] { pass(trace, checked, blocks); }) * 1e-9, trace);
  }
  // A heap that was asked for everything twice is warm: with the ring on as without.
  pass(trace, off, blocks);
  for (int times = 0; times < 2; ++times) pass(trace, on, blocks);
  const std::uint64_t calls_before = simulated::driver().calls();
  pass(trace, off, blocks);
  const std::uint64_t calls = simulated::driver().calls() - calls_before;
  compare(state, rounds,
          {{"cistern_ns", way_of(trace, off, blocks)},
           {"history_ns", way_of(trace, on, blocks)},
           {"peer_ns", theirs == nullptr ? TimedWay() : way_of(trace, *theirs, blocks)}});
  state.counters["driver_calls"] = static_cast<double>(calls) / static_cast<double>(operations_of(trace));
}

[[maybe_unused]] const bool kRegistered = register_traces("trace_replay", trace_replay);

}  // namespace
}  // namespace cistern
