#include "runtime/simulated/graph_update.h"

#include <algorithm>
#include <utility>

namespace cistern::simulated {
namespace {

using Info = CUgraphExecUpdateResultInfo;
constexpr std::size_t kUnpaired = ~std::size_t{0};

Info refusal(CUgraphExecUpdateResult result, CUgraphNode node = nullptr, CUgraphNode from = nullptr) {
  Info info{};
  info.result = result;
  info.errorNode = node;
  info.errorFromNode = from;
  return info;
}

Info topology_changed(CUgraphNode node = nullptr, CUgraphNode from = nullptr) {
  return refusal(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node, from);
}

bool is_success(const Info& info) { return info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS; }

// Which node of the graph stands for which of the executable one.
class Pairing {
 public:
  Pairing(const GraphBody& current, const GraphBody& update)
      : current_(current),
        update_(update),
        of_update_(update.nodes.size(), kUnpaired),
        of_current_(current.nodes.size(), kUnpaired) {}

  Info make() {
    if (update_.nodes.size() != current_.nodes.size()) return topology_changed();
    const std::vector<std::size_t> exits = update_.exits();
    const std::vector<std::size_t> current_exits = current_.exits();
    if (exits.size() > current_exits.size()) return topology_changed(node(exits[current_exits.size()]).handle);
    for (std::size_t i = 0; i < exits.size(); ++i) pair(exits[i], current_exits[i]);
    while (!open_.empty()) {
      const std::size_t index = open_.back();
      open_.pop_back();
      if (const Info info = pair_dependencies(index); !is_success(info)) return info;
    }
    // With fewer exits, a node of the executable graph may have no partner.
    const bool is_complete = std::find(of_update_.begin(), of_update_.end(), kUnpaired) == of_update_.end();
    return is_complete && exits.size() == current_exits.size() ? Info{} : topology_changed();
  }
  // Of a node of the graph. Requires: make has succeeded.
  [[nodiscard]] const GraphNode& partner(std::size_t index) const { return current_.nodes[of_update_[index]]; }

 private:
  [[nodiscard]] const GraphNode& node(std::size_t index) const { return update_.nodes[index]; }

  void pair(std::size_t index, std::size_t with) {
    of_update_[index] = with;
    of_current_[with] = index;
    open_.push_back(index);
  }

  Info pair_dependencies(std::size_t index) {
    const auto& dependencies = node(index).dependencies;
    const auto& current = partner(index).dependencies;
    if (dependencies.size() != current.size()) return topology_changed(node(index).handle);
    for (std::size_t i = 0; i < dependencies.size(); ++i) {
      const std::size_t mine = dependencies[i];
      const std::size_t theirs = current[i];
      if (of_update_[mine] == kUnpaired && of_current_[theirs] == kUnpaired) {
        pair(mine, theirs);
      } else if (of_update_[mine] != theirs) {
        return topology_changed(node(index).handle, node(mine).handle);
      }
    }
    return {};
  }

  const GraphBody& current_;
  const GraphBody& update_;
  std::vector<std::size_t> of_update_;
  std::vector<std::size_t> of_current_;
  std::vector<std::size_t> open_;
};

// Operands may move, but not to another device's memory, nor between device and host.
bool has_same_homes(const GraphNode& a, const GraphNode& b) { return a.homes == b.homes; }

Info check_kernel(const GraphNode& current, const GraphNode& update, unsigned long long flags) {
  if (current.device != update.device) {  // the context that owns the function
    return refusal(CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, update.handle);
  }
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0 && current.priority != update.priority) {
    return refusal(CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED, update.handle);
  }
  return {};
}

Info check_node(const GraphNode& current, const GraphNode& update, unsigned long long flags) {
  if (current.type != update.type) return refusal(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, update.handle);
  switch (update.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return check_kernel(current, update, flags);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
      if (current.device == update.device && has_same_homes(current, update)) return {};
      return refusal(CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, update.handle);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return refusal(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, update.handle);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return check_update(*current.child, *update.child, flags);
    default:
      return {};
  }
}

}  // namespace

Info check_update(const GraphBody& current, const GraphBody& update, unsigned long long flags) {
  Pairing pairing(current, update);
  if (const Info info = pairing.make(); !is_success(info)) return info;
  for (std::size_t index = 0; index < update.nodes.size(); ++index) {
    const Info info = check_node(pairing.partner(index), update.nodes[index], flags);
    if (!is_success(info)) return info;
  }
  return {};
}

}  // namespace cistern::simulated
