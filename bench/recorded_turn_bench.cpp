// What does a block take that another stream has used, the driver's calls and all? Allocate, record_stream,
// free and, in the next turn, reuse of the block, beside the plain pair, on the device that CISTERN_BENCH_DEVICE names:
// on a real one it stands beside an allocator that needs one. Nothing else runs on the streams.
// record_stream_bench.cpp takes the driver's calls off, which needs the simulated driver.

#include "bench/comparison.h"
#include "bench/hot_heap.h"
#include "bench/pairs.h"

namespace cistern {
namespace {

constexpr std::size_t kBytes = 4096;
constexpr std::size_t kPairs = 2000;
constexpr int kRounds = 101;

struct PeerRecorded {
  const Peer* peer;
  [[nodiscard]] void* allocate(std::size_t bytes) const { return peer->on_stream(0).allocate(bytes); }
  void release(void* pointer) const {
    peer->record_function(pointer, 1);
    peer->release(pointer);
  }
};

template <class Allocator>
TimedWay pairs_way(const Allocator& allocator) {
  return [allocator] { return time_pairs(allocator, kBytes, kPairs); };
}

void recorded_turn(benchmark::State& state) {
  HotHeap off(Ring::off);
  HotHeap on(Ring::on);
  HotHeap plain_off(Ring::off);
  HotHeap plain_on(Ring::on);
  const Stream owner = Stream::create();
  const Stream user = Stream::create();
  std::vector<NamedWay> ways = {{"cistern_ns", pairs_way(RecordedHeap{&off.allocator(), &owner, &user})},
                                {"history_ns", pairs_way(RecordedHeap{&on.allocator(), &owner, &user})},
                                {"cistern_plain_ns", pairs_way(plain_off.on_stream(owner))},
                                {"history_plain_ns", pairs_way(plain_on.on_stream(owner))}};
  if (const Peer* peer = process_peer(); peer != nullptr && peer->record_function != nullptr) {
    ways.push_back({"peer_ns", pairs_way(PeerRecorded{peer})});
    ways.push_back({"peer_plain_ns", pairs_way(peer->on_stream(0))});
  }
  compare(state, kRounds, std::move(ways));
}

BENCHMARK(recorded_turn)->Iterations(1)->UseManualTime();

}  // namespace
}  // namespace cistern
