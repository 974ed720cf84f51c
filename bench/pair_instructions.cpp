// How many instructions does a warm operation take? Does it a given number of times and nothing else, to be
// run twice under valgrind's callgrind: the difference of two counts has neither the start nor the end
// of the program in it, and is exact. ./dev bench hot does that.
//
// usage: cistern_pair_instructions WORK PAIRS    WORK: pair_4096, pair_20971520, pair_4096_history,
//        pair_20971520_history, recorded_4096, mixed_1000, mixed_1000_history, process_4096,
//        process_4096_history, peer_4096 or peer_20971520

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "bench/hot_heap.h"
#include "bench/mixed_sizes.h"
#include "bench/pairs.h"
#include "bench/peer.h"

namespace cistern {
namespace {

constexpr std::size_t kWarm = 100;

template <class Heap>
void do_pairs(Heap&& heap, std::size_t bytes, std::size_t pairs) {
  run_pairs(heap, bytes, kWarm);
  run_pairs(heap, bytes, pairs);
}

// Replacements of a heap that has done them all twice.
void do_replacements(HotHeap&& heap, std::size_t count) {
  constexpr std::size_t kLive = 1000;
  const std::vector<Replacement> work = replacements(kLive, 4 * kLive);
  MixedSizes sizes(heap, kLive, work);
  sizes.run();
  sizes.run();
  for (std::size_t i = 0; i < count; ++i) sizes.replace(work[i % work.size()]);
}

// Pairs whose block another stream used; the driver's calls are counted, too.
struct Recorded {
  HotHeap::OnStream owner;
  Stream user = Stream::create();
  [[nodiscard]] void* allocate(std::size_t bytes) const { return owner.allocate(bytes); }
  void release(void* pointer) const {
    owner.allocator->record_stream(pointer, user);
    owner.release(pointer);
  }
};

int run(std::string_view work, std::size_t pairs) {
  const Ring ring = work.ends_with("_history") ? Ring::on : Ring::off;
  const std::size_t bytes = work.find("4096") != std::string_view::npos ? 4096 : 20 << 20;
  if (work.starts_with("pair_")) {
    do_pairs(HotHeap(ring), bytes, pairs);
  } else if (work.starts_with("recorded_")) {
    HotHeap heap(ring);
    const Stream owner = Stream::create();
    do_pairs(Recorded{heap.on_stream(owner)}, bytes, pairs);
  } else if (work.starts_with("mixed_")) {
    do_replacements(HotHeap(ring), pairs);
  } else if (work.starts_with("process_")) {
    use_accounting_device();
    record_history(history_of(ring));
    do_pairs(ProcessHeap(), bytes, pairs);
  } else if (const Peer* peer = process_peer(); work.starts_with("peer_") && peer != nullptr) {
    do_pairs(*peer, bytes, pairs);
  } else {
    std::fprintf(stderr, "cistern_pair_instructions: cannot do '%s'\n", std::string(work).c_str());
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace cistern

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: cistern_pair_instructions WORK PAIRS\n");
    return 2;
  }
  return cistern::run(argv[1], std::strtoul(argv[2], nullptr, 10));
}
