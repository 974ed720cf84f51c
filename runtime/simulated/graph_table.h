#pragma once

// GraphTable: the graphs, nodes and executable graphs behind the handles of a driver.
//
// Not thread-safe: the driver holds its lock around every call. What is taken out is
// returned, so that the caller lets go of it with no lock held.

#include "runtime/simulated/graph.h"
#include "runtime/simulated/handle_table.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace cistern::simulated {

struct Graph {
  GraphBody body;
  bool is_capturing = false;                        // its nodes still come
  std::vector<std::shared_ptr<GraphArena>> arenas;  // where its allocations are: one a device
  std::size_t instances = 0;                        // executable graphs of it
};

struct GraphExec {
  // Shared with the launches that run; an update replaces it.
  std::shared_ptr<const GraphBody> body;
  CUgraph graph = nullptr;  // of which it was made; it may be gone
  unsigned long long flags = 0;
  Targets launched;  // the latest launch's end: the next one runs behind it
};

class GraphTable {
 public:
  struct Place {
    CUgraph graph = nullptr;
    std::size_t index = 0;
  };

  explicit GraphTable(std::uint16_t driver);

  [[nodiscard]] CUgraph create();
  // nullptr if there is none.
  [[nodiscard]] Graph* find(CUgraph handle) const;
  // Appends a node, and gives it a handle. Requires: the graph exists, and its dependencies.
  CUgraphNode add(CUgraph handle, GraphNode node);
  // nullptr if there is none.
  [[nodiscard]] const Place* find_place(CUgraphNode handle) const;
  [[nodiscard]] const GraphNode* find_node(CUgraphNode handle) const;
  // Requires: the graph exists.
  [[nodiscard]] std::shared_ptr<Graph> take(CUgraph handle);

  // Requires: the graph exists.
  [[nodiscard]] CUgraphExec create_exec(CUgraph graph, unsigned long long flags);
  [[nodiscard]] GraphExec* find_exec(CUgraphExec handle) const;
  [[nodiscard]] std::shared_ptr<GraphExec> take_exec(CUgraphExec handle);

 private:
  HandleTable<std::shared_ptr<Graph>> graphs_;
  HandleTable<Place> nodes_;
  HandleTable<std::shared_ptr<GraphExec>> execs_;
};

}  // namespace cistern::simulated
