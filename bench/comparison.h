#pragma once

// A benchmark's result as the table of goals reads it: several ways of the same work, interleaved,
// each a counter of Google Benchmark's.
//
// By convention `cistern_ns` is ours without history, `history_ns` ours with the ring on,
// `peer_ns` the peer's, whose name is the benchmark's label.

#include <benchmark/benchmark.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "bench/interleaved.h"
#include "bench/peer.h"

namespace cistern {

struct NamedWay {
  std::string counter;
  TimedWay way;  // empty: there is nothing to time, and no counter
};

inline void compare(benchmark::State& state, int rounds, std::vector<NamedWay> named) {
  std::erase_if(named, [](const NamedWay& each) { return !each.way; });
  std::vector<TimedWay> ways;
  for (const NamedWay& each : named) ways.push_back(each.way);
  while (state.KeepRunning()) {
    const std::vector<double> medians = interleaved_medians(ways, rounds);
    state.SetIterationTime(std::isnan(medians.front()) ? 0 : medians.front() * 1e-9);
    for (std::size_t i = 0; i < named.size(); ++i)
      if (!std::isnan(medians[i])) state.counters[named[i].counter] = medians[i];
  }
  if (const Peer* peer = process_peer()) state.SetLabel(peer->name);
}

}  // namespace cistern
