// Memory that graphs allocate and free: as nodes of a capture, at launches, and outside of graphs.
// "CUDA C++ Programming Guide", "Graph Memory Nodes".

#include <memory>
#include <utility>

#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {
namespace {

using FreeNode = GraphAllocation::FreeNode;

const std::shared_ptr<GraphArena>& arena_of(Graph& graph, int device, GraphMemory& memory) {
  for (const auto& arena : graph.arenas) {
    if (arena->device() == device) return arena;
  }
  graph.arenas.push_back(memory.make_arena(device));
  return graph.arenas.back();
}

bool frees(const GraphBody& body, const GraphAllocationPtr& allocation) {
  for (const GraphNode& node : body.nodes) {
    if (node.type == CU_GRAPH_NODE_TYPE_MEM_FREE && node.allocation == allocation) return true;
  }
  return false;
}

}  // namespace

// --- Capture ----------------------------------------------------------------------------

void DriverState::capture_memory_node(StreamQueue& stream, OperationKind kind, const GraphAllocationPtr& allocation) {
  Work work{.label = {kind, {}}};
  if (races) {
    work.accesses = {{allocation->address, allocation->bytes, true}};
    races->captured(stream, work);
  }
  GraphNode node;
  node.type = *node_type_of(kind);
  node.work = std::make_shared<const Work>(std::move(work));
  node.allocation = allocation;
  capture_node(stream, std::move(node));
}

// The pool gives its properties alone: the graph owns the memory (cuMemAllocFromPoolAsync).
CUresult DriverState::capture_allocation(CUdeviceptr* pointer, std::size_t bytes, const MemoryPool& pool,
                                         StreamQueue& stream) {
  if (const CUresult refused = captures.check_use(stream); refused != CUDA_SUCCESS) return refused;
  const CUgraph handle = stream.capture->sequence->graph;
  Graph& graph = *graphs.find(handle);
  const std::vector<bool> preceding = graph.body.preceding(places_of(stream.capture->frontier));
  GraphAllocation made;
  made.bytes = bytes;
  made.graph = handle;
  made.readers = pool.readers;
  made.writers = pool.writers;
  made.arena = arena_of(graph, pool.device, graph_memory);
  const GraphAllocationPtr allocation = graph_memory.add(
      std::move(made), [&](CUgraphNode node) { return static_cast<bool>(preceding[graphs.find_place(node)->index]); });
  if (allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (races) races->graph_allocation_captured(allocation->address, bytes);
  capture_memory_node(stream, OperationKind::allocation, allocation);
  *pointer = allocation->address;
  return CUDA_SUCCESS;
}

// "During stream capture, this function results in the creation of a free node and must therefore
// be passed the address of a graph allocation": cuMemFreeAsync. What else is refused:
// cuGraphAddMemAllocNode, cuGraphAddMemFreeNode.
CUresult DriverState::capture_free(CUdeviceptr pointer, StreamQueue& stream) {
  const CUgraph handle = stream.capture->sequence->graph;
  const GraphBody& body = graphs.find(handle)->body;
  const GraphAllocationPtr allocation = graph_memory.find(pointer);
  const bool is_owner = allocation != nullptr && allocation->graph == handle;
  const bool is_taken = allocation == nullptr || allocation->is_freed_by_its_graph() ||
                        (allocation->free_node == FreeNode::in_another && (is_owner || frees(body, allocation)));
  if (is_taken) {
    if (races && pointer != 0) races->freed_nothing(pointer, "cuMemFreeAsync");
    return CUDA_ERROR_INVALID_VALUE;
  }
  capture_memory_node(stream, OperationKind::release, allocation);
  allocation->free_node = is_owner ? FreeNode::in_its_graph : FreeNode::in_another;
  if (is_owner) allocation->arena->freed_by(stream.capture->frontier.front(), pointer, allocation->bytes);
  return CUDA_SUCCESS;
}

// --- Frees outside of graphs ------------------------------------------------------------

// What a graph frees itself "cannot be freed outside the owning graph": cuGraphAddMemAllocNode.
CUresult DriverState::check_graph_free(const GraphAllocation& allocation, const char* entry) {
  if (allocation.is_live) return CUDA_SUCCESS;
  if (races) races->freed_nothing(allocation.address, entry);
  return CUDA_ERROR_INVALID_VALUE;
}

void DriverState::free_in_stream(const GraphAllocationPtr& allocation, StreamQueue& stream, const Targets& behind) {
  Work work{.label = {OperationKind::release, {}}};
  if (races) work.accesses = {{allocation->address, allocation->bytes, true}};
  work.function = [this, allocation](CUresult) {
    const std::lock_guard lock(mutex);
    graph_memory.free_ran(*allocation);
    return CUDA_SUCCESS;
  };
  work.runs_after_failure = true;                              // the accounts go on
  static_cast<void>(submit(stream, std::move(work), behind));  // it does not capture
  graph_memory.withdraw(*allocation);
}

// As that of a pool's allocation: waits for none of the work on it.
CUresult DriverState::free_graph_allocation(Lock& lock, const GraphAllocationPtr& allocation) {
  if (const CUresult refused = check_graph_free(*allocation, "cuMemFree"); refused != CUDA_SUCCESS) return refused;
  const std::uint64_t launch = allocation->allocated.id;
  executor.finish(lock, {allocation->allocated});
  // While this thread waited, another may have freed it, and launched it again.
  if (!allocation->is_live || allocation->allocated.id != launch) return CUDA_ERROR_INVALID_VALUE;
  if (races) races->freed(allocation->address, "cuMemFree");
  graph_memory.withdraw(*allocation);
  graph_memory.free_ran(*allocation);
  return CUDA_SUCCESS;
}

// --- Launches ---------------------------------------------------------------------------

std::function<CUresult(CUresult)> DriverState::memory_function(const GraphNode& node) {
  const bool allocates = node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  return [this, allocates, allocation = node.allocation](CUresult) {
    const std::lock_guard lock(mutex);
    if (allocates) {
      graph_memory.allocation_ran(allocation);
    } else {
      graph_memory.free_ran(*allocation);
    }
    return CUDA_SUCCESS;
  };
}

// Refuses, or brings the graph's memory to where a launch finds it: cuGraphLaunch, on
// allocations that remain unfreed; cuGraphInstantiate, AUTO_FREE_ON_LAUNCH.
CUresult DriverState::prepare_memory(StreamQueue& stream, const GraphExec& exec) {
  if (!exec.body->has_memory_nodes()) return CUDA_SUCCESS;
  const bool frees_unfreed = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  std::vector<GraphAllocationPtr> unfreed;
  for (const GraphNode& node : exec.body->nodes) {
    if (node.allocation == nullptr) continue;
    const GraphAllocation& allocation = *node.allocation;
    if (node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && allocation.is_live) {
      if (!frees_unfreed) return CUDA_ERROR_INVALID_VALUE;
      unfreed.push_back(node.allocation);
    }
    const bool frees_anothers = node.type == CU_GRAPH_NODE_TYPE_MEM_FREE && !allocation.is_freed_by_its_graph();
    if (!frees_anothers) continue;
    if (const CUresult refused = check_graph_free(allocation, "cuGraphLaunch"); refused != CUDA_SUCCESS) return refused;
  }
  if (!graph_memory.provide(exec.body->arenas(), executor.preceding(stream))) return CUDA_ERROR_OUT_OF_MEMORY;
  if (races) races->launching(stream, &exec);
  for (const GraphAllocationPtr& allocation : unfreed) free_in_stream(allocation, stream, exec.launched);
  return CUDA_SUCCESS;
}

void DriverState::launched_memory(const GraphExec& exec, const std::vector<MemoryNode>& nodes, const Targets& queued) {
  for (const MemoryNode& each : nodes) {
    const GraphAllocationPtr& allocation = each.node->allocation;
    if (each.node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      allocation->allocated = queued[each.place];
      if (!allocation->is_freed_by_its_graph()) graph_memory.make_live(allocation);
    } else if (!allocation->is_freed_by_its_graph()) {
      graph_memory.withdraw(*allocation);
    }
  }
  for (const auto& arena : exec.body->arenas()) arena->launched = exec.launched.front();
}

// --- A device's stock -------------------------------------------------------------------

CUresult DriverState::device_graph_mem_trim(CUdevice index) {
  if (!is_device(index)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(mutex);
  graph_memory.trim(index);
  return CUDA_SUCCESS;
}

CUresult DriverState::device_get_graph_mem_attribute(CUdevice index, CUgraphMem_attribute attribute, void* value) {
  if (!is_device(index)) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  graph_memory.collect();
  auto& bytes = *static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      bytes = graph_memory.used(index);
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      bytes = graph_memory.most_used(index);
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      bytes = graph_memory.reserved(index);
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      bytes = graph_memory.most_reserved(index);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// "High watermark can only be reset to zero."
CUresult DriverState::device_set_graph_mem_attribute(CUdevice index, CUgraphMem_attribute attribute, void* value) {
  if (!is_device(index)) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr || *static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  graph_memory.collect();
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      graph_memory.reset_most_used(index);
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      graph_memory.reset_most_reserved(index);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace cistern::simulated
