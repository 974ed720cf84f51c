#pragma once

// What the statements on capture and on graphs share.

#include "tests/conformance/driver_case.h"

namespace cistern::conformance {

class GraphCase : public DriverCase {
 protected:
  void give_back() override;

  void begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  // Ends the capture; the graph is destroyed at the end of the test.
  CUgraph end(CUstream stream);
  // Ends a capture that a mistake was made in, whatever it comes to.
  void drop(CUstream stream);
  CUgraphExec instantiate(CUgraph graph);
  CUstreamCaptureStatus status(CUstream stream);
  unsigned long long capture_id(CUstream stream);
  std::vector<CUgraphNode> nodes(CUgraph graph);
  std::vector<CUgraphNodeType> types(CUgraph graph);
  struct Edge {
    CUgraphNode from;
    CUgraphNode to;
  };
  std::vector<Edge> edges(CUgraph graph);
  CUgraphNodeType type(CUgraphNode node);

 private:
  std::vector<CUgraph> graphs_;
  std::vector<CUgraphExec> execs_;
};

}  // namespace cistern::conformance
