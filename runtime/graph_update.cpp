// Updates of an instantiated graph, and why the driver refuses one.

#include <cistern/error.h>
#include <cistern/graph.h>
#include <fmt/format.h>

#include "runtime/driver_error.h"
#include "runtime/graph_state.h"

namespace cistern {
namespace {

GraphUpdateRefusal refusal_of(CUgraphExecUpdateResult result) noexcept {
  switch (result) {
    case CU_GRAPH_EXEC_UPDATE_SUCCESS:
      return GraphUpdateRefusal::none;
    case CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED:
      return GraphUpdateRefusal::topology_changed;
    case CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED:
      return GraphUpdateRefusal::node_type_changed;
    case CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED:
      return GraphUpdateRefusal::function_changed;
    case CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE:
      return GraphUpdateRefusal::unsupported_function_change;
    case CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED:
      return GraphUpdateRefusal::parameters_changed;
    case CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED:
      return GraphUpdateRefusal::attributes_changed;
    case CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED:
      return GraphUpdateRefusal::not_supported;
    case CU_GRAPH_EXEC_UPDATE_ERROR:
      break;
  }
  return GraphUpdateRefusal::other;
}

// " at a kernel node", or nothing where the driver names no node.
std::string describe_node(const DriverApi& api, CUgraphNode node) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  if (node == nullptr || api.graph_node_get_type(node, &type) != CUDA_SUCCESS) return {};
  return fmt::format(" at a node of kind {}", to_string(node_kind(type)));
}

}  // namespace

const char* to_string(GraphUpdateRefusal refusal) noexcept {
  switch (refusal) {
    case GraphUpdateRefusal::none:
      return "none";
    case GraphUpdateRefusal::topology_changed:
      return "the topology changed";
    case GraphUpdateRefusal::node_type_changed:
      return "the type of a node changed";
    case GraphUpdateRefusal::function_changed:
      return "the function of a kernel changed";
    case GraphUpdateRefusal::unsupported_function_change:
      return "the function of a kernel changed in a way that is not supported";
    case GraphUpdateRefusal::parameters_changed:
      return "parameters changed in a way that is not supported";
    case GraphUpdateRefusal::attributes_changed:
      return "attributes changed in a way that is not supported";
    case GraphUpdateRefusal::not_supported:
      return "something about a node is not supported";
    case GraphUpdateRefusal::other:
      break;
  }
  return "the driver names no reason";
}

GraphUpdateResult Graph::update(const Graph& other) const {
  State& state = GraphAccess::require(*this, "update");
  State& source = GraphAccess::require(other, "update");
  if (state.driver != source.driver)
    throw InvalidArgument(
        fmt::format("update of {} from {}: they belong to different drivers", state.describe(), source.describe()));
  const DeviceScope scope = state.scope();
  const DriverApi& api = scope.api();
  // Another order on each side cannot deadlock; a graph may be updated from itself.
  std::unique_lock lock(state.mutex, std::defer_lock);
  std::unique_lock source_lock(source.mutex, std::defer_lock);
  if (&state == &source)
    lock.lock();
  else
    std::lock(lock, source_lock);
  state.instantiate(api);
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = api.graph_exec_update(state.exec, source.graph, &info);
  const auto describe = [&] { return fmt::format("{} from {}", state.describe(), source.describe()); };
  if (result != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) {
    check_driver(api, result, DriverEntryId::graph_exec_update, describe);
    return {};
  }
  GraphUpdateResult refused;
  refused.refusal = refusal_of(info.result);
  if (refused) refused.refusal = GraphUpdateRefusal::other;  // the driver failed and says that it did not
  refused.text = fmt::format("cuGraphExecUpdate of {}: {}{}", describe(), to_string(refused.refusal),
                             describe_node(api, info.errorNode));
  return refused;
}

}  // namespace cistern
