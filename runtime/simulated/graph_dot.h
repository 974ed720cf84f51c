#pragma once

// A graph as text for Graphviz: what cuGraphDebugDotPrint writes.

#include "runtime/simulated/graph.h"

#include <string>

namespace cistern::simulated {

// `flags`: of CUgraphDebugDot_flags, those that name something a node here has.
[[nodiscard]] std::string dot_text(const GraphBody& body, unsigned flags);

}  // namespace cistern::simulated
