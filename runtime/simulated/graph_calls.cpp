// Entries about graphs.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "runtime/simulated/driver_state.h"
#include "runtime/simulated/graph_dot.h"
#include "runtime/simulated/graph_update.h"

namespace cistern::simulated {
namespace {

// cuGraphInstantiate: what a graph must be like to be launched from the device.
bool is_device_launchable(const GraphBody& body) {
  const auto is_work = [](const GraphNode& node) {
    return node.type == CU_GRAPH_NODE_TYPE_KERNEL || node.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           node.type == CU_GRAPH_NODE_TYPE_MEMSET;
  };
  const auto is_allowed = [&](const GraphNode& node) {
    if (node.device != body.nodes.front().device) return false;
    return is_work(node) || (node.type == CU_GRAPH_NODE_TYPE_GRAPH && is_device_launchable(*node.child));
  };
  return std::all_of(body.nodes.begin(), body.nodes.end(), is_allowed) &&
         std::any_of(body.nodes.begin(), body.nodes.end(), is_work);
}

bool is_instantiable(const GraphBody& body, unsigned long long flags) {
  // Upload belongs to cuGraphInstantiateWithParams, which names a stream for it.
  constexpr unsigned long long known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                       CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                                       CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if ((flags & ~known) != 0) return false;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) == 0) return true;
  return (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) == 0 && is_device_launchable(body);
}

// As the entries that list things do: fills up to `*count`, clears what is beyond the last,
// and tells how many there are where there is room for more.
class Listing {
 public:
  explicit Listing(std::size_t* count) : room_(*count), count_(count) {}
  ~Listing() { *count_ = std::min(room_, next_); }
  Listing(const Listing&) = delete;
  Listing& operator=(const Listing&) = delete;

  // The next place in the caller's array; none if it is full.
  [[nodiscard]] bool take(std::size_t* place) {
    *place = next_;
    if (next_ < room_) ++next_;
    return *place < room_;
  }
  [[nodiscard]] std::size_t room() const { return room_; }
  [[nodiscard]] std::size_t used() const { return next_; }

 private:
  std::size_t room_;
  std::size_t* count_;
  std::size_t next_ = 0;
};

}  // namespace

CUresult DriverState::graph_instantiate(CUgraphExec* exec, CUgraph handle, unsigned long long flags) {
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  const Graph* graph = graphs.find(handle);
  if (graph == nullptr || !is_instantiable(graph->body, flags)) return CUDA_ERROR_INVALID_VALUE;
  // Two would have one allocation's address.
  if (graph->instances != 0 && graph->body.has_memory_nodes()) return CUDA_ERROR_INVALID_VALUE;
  *exec = graphs.create_exec(handle, flags);
  return CUDA_SUCCESS;
}

// "Cloning is not supported for graphs which contain memory allocation nodes, memory free nodes":
// cuGraphClone, which names no other error for it.
CUresult DriverState::graph_clone(CUgraph* clone, CUgraph original) {
  if (clone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  const Graph* graph = graphs.find(original);
  if (graph == nullptr || graph->is_capturing || graph->body.has_memory_nodes()) return CUDA_ERROR_INVALID_VALUE;
  const CUgraph copy = graphs.create();
  for (const GraphNode& node : graph->body.nodes) graphs.add(copy, node);
  graphs.find(copy)->body.objects = graph->body.objects;
  *clone = copy;
  return CUDA_SUCCESS;
}

CUresult DriverState::graph_launch(CUgraphExec handle, CUstream stream_handle) {
  const std::lock_guard lock(mutex);
  GraphExec* exec = graphs.find_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(stream_handle, &stream); refused != CUDA_SUCCESS) return refused;
  return submit_graph(*stream, *exec);
}

// Nothing has to be copied to a simulated device, so the graph's memory and the errors are left.
CUresult DriverState::graph_upload(CUgraphExec handle, CUstream stream_handle) {
  const std::lock_guard lock(mutex);
  const GraphExec* exec = graphs.find_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(stream_handle, &stream); refused != CUDA_SUCCESS) return refused;
  if (const CUresult refused = captures.check_use(*stream); refused != CUDA_SUCCESS) return refused;
  if (stream->capture != nullptr) return refuse_in_capture(*stream);
  const GraphMemory::Arenas arenas = exec->body->arenas();
  const bool is_provided = arenas.empty() || graph_memory.provide(arenas, executor.preceding(*stream));
  return is_provided ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult DriverState::graph_exec_update(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* info) {
  if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *info = {};
  info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
  std::shared_ptr<const GraphBody> former;  // let go of with no lock held
  const std::lock_guard lock(mutex);
  GraphExec* exec = graphs.find_exec(handle);
  const Graph* graph = graphs.find(graph_handle);
  if (exec == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *info = check_update(*exec->body, graph->body, exec->flags);
  if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  former = std::exchange(exec->body, std::make_shared<const GraphBody>(graph->body));
  return CUDA_SUCCESS;
}

// Launches that run keep what they need.
CUresult DriverState::graph_exec_destroy(CUgraphExec handle) {
  std::shared_ptr<GraphExec> dropped;  // let go of with no lock held
  const std::lock_guard lock(mutex);
  if (graphs.find_exec(handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  dropped = graphs.take_exec(handle);
  if (races) races->exec_destroyed(dropped.get());
  return CUDA_SUCCESS;
}

CUresult DriverState::graph_destroy(CUgraph handle) {
  std::shared_ptr<Graph> dropped;  // let go of with no lock held
  const std::lock_guard lock(mutex);
  const Graph* graph = graphs.find(handle);
  if (graph == nullptr || graph->is_capturing) return CUDA_ERROR_INVALID_VALUE;
  dropped = graphs.take(handle);
  return CUDA_SUCCESS;
}

CUresult DriverState::graph_get_nodes(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  const Graph* graph = graphs.find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (nodes == nullptr) {
    *count = graph->body.nodes.size();
    return CUDA_SUCCESS;
  }
  Listing listing(count);
  std::size_t place = 0;
  for (const GraphNode& node : graph->body.nodes) {
    if (listing.take(&place)) nodes[place] = node.handle;
  }
  std::fill(nodes + listing.used(), nodes + listing.room(), nullptr);
  return CUDA_SUCCESS;
}

CUresult DriverState::graph_get_edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
  if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  const Graph* graph = graphs.find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (from == nullptr) {
    *count = graph->body.edge_count();
    return CUDA_SUCCESS;
  }
  Listing listing(count);
  std::size_t place = 0;
  for (const GraphNode& node : graph->body.nodes) {
    for (const std::size_t dependency : node.dependencies) {
      if (!listing.take(&place)) continue;
      from[place] = graph->body.nodes[dependency].handle;
      to[place] = node.handle;
    }
  }
  std::fill(from + listing.used(), from + listing.room(), nullptr);
  std::fill(to + listing.used(), to + listing.room(), nullptr);
  return CUDA_SUCCESS;
}

CUresult DriverState::graph_node_get_type(CUgraphNode handle, CUgraphNodeType* type) {
  if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  const GraphNode* node = graphs.find_node(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type;
  return CUDA_SUCCESS;
}

CUresult DriverState::graph_debug_dot_print(CUgraph handle, const char* path, unsigned flags) {
  constexpr unsigned known = 2 * CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS - 1;
  if (path == nullptr || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::string text;
  {
    const std::lock_guard lock(mutex);
    const Graph* graph = graphs.find(handle);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    text = dot_text(graph->body, flags);
  }
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && is_written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace cistern::simulated
