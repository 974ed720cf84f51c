#pragma once

// Graphs: what a capture records, and what a launch runs.
//
// Plain data, guarded by the driver's lock. What nodes hold is their user's code: let go of
// the last copy of a body with no lock held.

#include "runtime/simulated/operation.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace cistern::simulated {

struct GraphAllocation;
class GraphArena;
struct GraphBody;
class UserObject;

struct GraphNode {
  CUgraphNode handle = nullptr;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  int device = 0;                               // whose context it runs in
  int priority = 0;                             // of the stream that it was captured from
  std::vector<std::size_t> dependencies;        // indices of nodes before it, each once
  std::shared_ptr<const Work> work;             // of a kernel, copy, fill or host function; of memory without function
  std::vector<int> homes;                       // whose memory each access of the work was: -1: the host's
  CUevent event = nullptr;                      // of an external record or wait
  std::shared_ptr<const GraphBody> child;       // of an embedded graph
  std::shared_ptr<GraphAllocation> allocation;  // that an allocation or free node makes or ends
};

// Nodes in an order in which each comes after its dependencies.
struct GraphBody {
  std::vector<GraphNode> nodes;
  std::vector<std::shared_ptr<const UserObject>> objects;  // kept for the user

  // The nodes on which no other depends, ascending.
  [[nodiscard]] std::vector<std::size_t> exits() const;
  // By node: whether it is one of these, or comes before one of them.
  [[nodiscard]] std::vector<bool> preceding(const std::vector<std::size_t>& ends) const;
  // Whether that holds for every node.
  [[nodiscard]] bool all_precede(const std::vector<std::size_t>& ends) const;
  [[nodiscard]] std::size_t edge_count() const;
  // Whether it allocates or frees. What is embedded in it does not.
  [[nodiscard]] bool has_memory_nodes() const;
  // Whose memory a launch needs, each once.
  [[nodiscard]] std::vector<std::shared_ptr<GraphArena>> arenas() const;
};

// An allocation or free of a launch, by its place among what was queued.
struct MemoryNode {
  const GraphNode* node = nullptr;
  std::size_t place = 0;
};

// What the driver says of a node's type, e.g. "kernel".
[[nodiscard]] const char* name_of(CUgraphNodeType type) noexcept;
// The type of the node that such work becomes; none if the work cannot be captured.
[[nodiscard]] std::optional<CUgraphNodeType> node_type_of(OperationKind kind) noexcept;

}  // namespace cistern::simulated
