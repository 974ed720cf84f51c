#pragma once

// What cuGraphExecUpdate refuses: CUDA Driver API, "Graph Management".

#include "runtime/simulated/graph.h"

namespace cistern::simulated {

// Whether an executable graph that runs `current` can be made to run `update`: the nodes are
// paired from the exits along the edges, each in the order in which it was made. The result
// names the first difference that is not allowed.
[[nodiscard]] CUgraphExecUpdateResultInfo check_update(const GraphBody& current, const GraphBody& update,
                                                       unsigned long long instantiate_flags);

}  // namespace cistern::simulated
