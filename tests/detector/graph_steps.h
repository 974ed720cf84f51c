#pragma once

// What programs do with captures and graphs.

#include "tests/detector/program.h"

namespace cistern::testing {

inline void begin(World& w, StreamHandle stream) {
  EXPECT_EQ(w.api.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
}

// Ends the capture and makes the graph launchable.
inline CUgraphExec finish(World& w, StreamHandle stream, unsigned long long flags = 0) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_EQ(w.api.stream_end_capture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(w.api.graph_instantiate(&exec, graph, flags), CUDA_SUCCESS);
  return exec;
}

inline void launch(World& w, CUgraphExec exec, StreamHandle stream) {
  EXPECT_EQ(w.api.graph_launch(exec, stream), CUDA_SUCCESS);
}

}  // namespace cistern::testing
