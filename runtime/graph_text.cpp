// What a graph consists of: its nodes, and its text.

#include <cistern/error.h>
#include <cistern/graph.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "runtime/driver_error.h"
#include "runtime/graph_state.h"

namespace cistern {
namespace {

// A file in memory, for a driver's call that writes to a path.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("cistern-graph", MFD_CLOEXEC)) {
    if (descriptor_ < 0)
      throw NotSupported(
          fmt::format("a file in memory for a graph's text: {}", std::generic_category().message(errno)));
  }
  ~MemoryFile() { static_cast<void>(close(descriptor_)); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  [[nodiscard]] std::string path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }
  [[nodiscard]] std::string text() const {
    std::string text;
    char part[4096];
    for (;;) {
      const ssize_t bytes = pread(descriptor_, part, sizeof part, static_cast<off_t>(text.size()));
      if (bytes == 0) return text;
      if (bytes > 0)
        text.append(part, static_cast<std::size_t>(bytes));
      else if (errno != EINTR)
        throw NotSupported(
            fmt::format("a graph's text cannot be read back: {}", std::generic_category().message(errno)));
    }
  }

 private:
  int descriptor_;
};

std::size_t count_nodes(const DriverApi& api, const GraphAccess::State& state) {
  std::size_t count = 0;
  check_driver(api, api.graph_get_nodes(state.graph, nullptr, &count), DriverEntryId::graph_get_nodes,
               [&] { return state.describe(); });
  return count;
}

}  // namespace

GraphNodeKind node_kind(CUgraphNodeType type) noexcept {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return GraphNodeKind::kernel;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return GraphNodeKind::copy;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return GraphNodeKind::fill;
    case CU_GRAPH_NODE_TYPE_HOST:
      return GraphNodeKind::host_function;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return GraphNodeKind::child_graph;
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return GraphNodeKind::empty;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return GraphNodeKind::event_wait;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return GraphNodeKind::event_record;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return GraphNodeKind::memory_allocation;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return GraphNodeKind::memory_free;
    default:
      return GraphNodeKind::other;
  }
}

const char* to_string(GraphNodeKind kind) noexcept {
  switch (kind) {
    case GraphNodeKind::kernel:
      return "kernel";
    case GraphNodeKind::copy:
      return "copy";
    case GraphNodeKind::fill:
      return "fill";
    case GraphNodeKind::host_function:
      return "host function";
    case GraphNodeKind::child_graph:
      return "child graph";
    case GraphNodeKind::empty:
      return "empty";
    case GraphNodeKind::event_wait:
      return "event wait";
    case GraphNodeKind::event_record:
      return "event record";
    case GraphNodeKind::memory_allocation:
      return "memory allocation";
    case GraphNodeKind::memory_free:
      return "memory free";
    case GraphNodeKind::other:
      break;
  }
  return "other";
}

std::size_t Graph::node_count() const {
  State& state = GraphAccess::require(*this, "node_count");
  const DeviceScope scope = state.scope();
  const std::lock_guard lock(state.mutex);
  return count_nodes(scope.api(), state);
}

std::vector<GraphNodeKind> Graph::node_kinds() const {
  State& state = GraphAccess::require(*this, "node_kinds");
  const DeviceScope scope = state.scope();
  const DriverApi& api = scope.api();
  const std::lock_guard lock(state.mutex);
  std::size_t count = count_nodes(api, state);
  std::vector<CUgraphNode> nodes(count);
  // With no room the driver takes the call for the question how many there are.
  if (count != 0)
    check_driver(api, api.graph_get_nodes(state.graph, nodes.data(), &count), DriverEntryId::graph_get_nodes,
                 [&] { return state.describe(); });
  std::vector<GraphNodeKind> kinds;
  kinds.reserve(count);
  for (const CUgraphNode node : nodes) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    check_driver(api, api.graph_node_get_type(node, &type), DriverEntryId::graph_node_get_type,
                 [&] { return fmt::format("node {} of {}", kinds.size(), state.describe()); });
    kinds.push_back(node_kind(type));
  }
  return kinds;
}

std::string Graph::debug_text() const {
  State& state = GraphAccess::require(*this, "debug_text");
  const DeviceScope scope = state.scope();
  const MemoryFile file;
  const std::lock_guard lock(state.mutex);
  check_driver(scope.api(),
               scope.api().graph_debug_dot_print(state.graph, file.path().c_str(), CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE),
               DriverEntryId::graph_debug_dot_print, [&] { return state.describe(); });
  return file.text();
}

}  // namespace cistern
