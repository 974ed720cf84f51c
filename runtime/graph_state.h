#pragma once

// What the copies of a Graph share.

#include <cistern/graph.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/device_scope.h"
#include "runtime/driver_api.h"

namespace cistern {

// Graphs and their executable forms are not synchronised by the driver (CUDA Driver API, "Graph
// object thread safety"): every call on either takes the mutex.
struct Graph::State {
  State(const DriverApi* its_driver, int its_device) : driver(its_driver), device(its_device) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  // Destroys both; a launch that is under way still completes.
  ~State();

  [[nodiscard]] DeviceScope scope() const { return {driver, device}; }
  [[nodiscard]] std::string describe() const;
  // Makes the executable form if there is none. The mutex must be held.
  void instantiate(const DriverApi& api);
  // Throws InvalidArgument if the stream belongs to another driver.
  void require_same_driver(const Stream& stream) const;

  const DriverApi* const driver;  // null: the process's
  const int device;
  CUgraph graph = nullptr;  // null only while it is made
  std::mutex mutex;
  CUgraphExec exec = nullptr;  // null: not instantiated yet
};

struct GraphAccess {
  using State = Graph::State;
  static Graph make(std::shared_ptr<State> state) {
    Graph graph;
    graph.state_ = std::move(state);
    return graph;
  }
  // Throws InvalidArgument, naming the operation, for a Graph that is none.
  static State& require(const Graph& graph, const char* operation);
};

// What the driver's node does.
[[nodiscard]] GraphNodeKind node_kind(CUgraphNodeType type) noexcept;

}  // namespace cistern
