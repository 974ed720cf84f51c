#include "runtime/simulated/graph.h"

#include <algorithm>
#include <numeric>

#include "runtime/simulated/graph_memory.h"

namespace cistern::simulated {

std::vector<std::size_t> GraphBody::exits() const {
  std::vector<bool> is_needed(nodes.size());
  for (const GraphNode& node : nodes) {
    for (const std::size_t dependency : node.dependencies) is_needed[dependency] = true;
  }
  std::vector<std::size_t> exits;
  for (std::size_t index = 0; index < nodes.size(); ++index) {
    if (!is_needed[index]) exits.push_back(index);
  }
  return exits;
}

std::vector<bool> GraphBody::preceding(const std::vector<std::size_t>& ends) const {
  std::vector<bool> precedes(nodes.size());
  for (const std::size_t end : ends) precedes[end] = true;
  // Backwards, so that a node is settled before its dependencies are looked at.
  for (std::size_t index = nodes.size(); index-- > 0;) {
    if (!precedes[index]) continue;
    for (const std::size_t dependency : nodes[index].dependencies) precedes[dependency] = true;
  }
  return precedes;
}

bool GraphBody::all_precede(const std::vector<std::size_t>& ends) const {
  const std::vector<bool> precedes = preceding(ends);
  return std::find(precedes.begin(), precedes.end(), false) == precedes.end();
}

bool GraphBody::has_memory_nodes() const {
  return std::any_of(nodes.begin(), nodes.end(), [](const GraphNode& node) { return node.allocation != nullptr; });
}

std::vector<std::shared_ptr<GraphArena>> GraphBody::arenas() const {
  std::vector<std::shared_ptr<GraphArena>> arenas;
  for (const GraphNode& node : nodes) {
    if (node.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    const auto& arena = node.allocation->arena;
    if (std::find(arenas.begin(), arenas.end(), arena) == arenas.end()) arenas.push_back(arena);
  }
  return arenas;
}

std::size_t GraphBody::edge_count() const {
  return std::accumulate(nodes.begin(), nodes.end(), std::size_t{0},
                         [](std::size_t count, const GraphNode& node) { return count + node.dependencies.size(); });
}

const char* name_of(CUgraphNodeType type) noexcept {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "kernel";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "copy";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "fill";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "host function";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "graph";
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return "empty";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "event wait";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "event record";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "allocation";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "free";
    default:
      return "unknown";
  }
}

std::optional<CUgraphNodeType> node_type_of(OperationKind kind) noexcept {
  switch (kind) {
    case OperationKind::kernel:
      return CU_GRAPH_NODE_TYPE_KERNEL;
    case OperationKind::copy:
      return CU_GRAPH_NODE_TYPE_MEMCPY;
    case OperationKind::fill:
      return CU_GRAPH_NODE_TYPE_MEMSET;
    case OperationKind::host_function:
      return CU_GRAPH_NODE_TYPE_HOST;
    case OperationKind::allocation:
      return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    case OperationKind::release:
      return CU_GRAPH_NODE_TYPE_MEM_FREE;
    default:
      return std::nullopt;
  }
}

}  // namespace cistern::simulated
